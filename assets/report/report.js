// Draws the report's figures from the data beside them, and switches between dark and light.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const setTheme = (on) => document.documentElement.classList.toggle("dark", on);

setTheme(dark.matches);
dark.addEventListener("change", (event) => setTheme(event.matches));
document.getElementById("gl-theme").addEventListener("click", () => {
  setTheme(!document.documentElement.classList.contains("dark"));
});

for (const place of document.querySelectorAll("[data-figure]")) {
  const { data, layout } = JSON.parse(place.nextElementSibling.textContent);
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false, plotlyServerURL: "", showSendToCloud: false,
    modeBarButtonsToRemove: ["sendDataToCloud", "sendChartToCloud"],
    toImageButtonOptions: { filename: place.dataset.figure, scale: 2 },
  };
  Plotly.newPlot(place, data, layout, config);
}
