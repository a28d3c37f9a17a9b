// The buttons of the table of runs: what they ask for goes to the server with the event "act".
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-deed]");
  if (button) trigger("act", { asked: JSON.stringify([button.dataset.deed, Number(button.dataset.run)]) });
});
