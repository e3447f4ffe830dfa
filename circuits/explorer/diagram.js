// Shows the drawing from Python, and sends Python what is clicked, or chosen with Enter or the space bar.
function render({ model, el }) {
  el.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab handles the keys
  const draw = () => {
    const focused = el.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    el.innerHTML = model.get("svg");
    if (focused) el.querySelector(`[data-act="${CSS.escape(focused)}"]`)?.focus();
  };
  const act = (event) => {
    const chosen = event.target.closest("[data-act]");
    if (!chosen || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation();
    chosen.focus();
    model.send(chosen.dataset.act);
  };
  el.addEventListener("click", act);
  el.addEventListener("keydown", act);
  model.on("change:svg", draw);
  draw();
}
export default { render };
