// Marks the panels that show something else than what the controls say, and comes back to a run after a reload.
// props.value is JSON: {stale: {panel or "all": reason}, source: "live" | "precomputed" | ...,
// preview: [panel], resume: bool}.
function apply() {
  if (!props.value) return;
  const value = typeof props.value === "string" ? JSON.parse(props.value) : props.value;
  document.getElementById("gl-main")?.setAttribute("data-source", value.source);
  for (const panel of document.querySelectorAll("[id^='gl-panel-']")) {
    const name = panel.id.slice("gl-panel-".length);
    const reason = name === "layer_map" || name === "runs" ? "" : value.stale[name] || value.stale.all || "";
    panel.toggleAttribute("data-preview", value.preview.includes(name));
    if (reason) panel.dataset.stale = reason; else delete panel.dataset.stale;
  }
  if (value.resume) setTimeout(() => trigger("resume"), 0);
}

apply();
watch("value", apply);
