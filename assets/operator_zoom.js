// Zoom on demand: a box drawn on one of the operator's heat maps asks the server for the entries under it. `props` and
// `trigger` are given by gr.HTML; props.value is JSON: {rows: [first, last], columns: [first, last]}, or null for all.
// A figure that is redrawn is another plot, so each is listened to when it is first touched.
function listen(event) {
  const plot = event.target.closest?.("[id^='gl-plot-operator-'] .js-plotly-plot");
  if (!plot || plot.glZooms) return;
  plot.glZooms = true;
  plot.on("plotly_relayout", (change) => {
    const keys = Object.keys(change).filter((key) => /^[xy]axis\.(range|autorange)/.test(key));
    if (!keys.length) return; // a resize, or new colours
    const whole = keys.some((key) => key.endsWith("autorange"));
    const { xaxis, yaxis } = plot.layout;
    // A pixel reaches half an entry beyond its channel, on both sides.
    const inside = ([a, b]) => [Math.min(a, b) + 0.49, Math.max(a, b) - 0.49];
    props.value = JSON.stringify(whole ? null : { rows: inside(yaxis.range), columns: inside(xaxis.range) });
    setTimeout(() => trigger("pick"), 0);
  });
}

document.addEventListener("pointerdown", listen, true);
