// Appended to the code of attention viewers. Locks the chosen head by a click on it as soon as it is drawn.
function render({ model, el }) {
  const update = showAttention(el, model.get("panels"));
  let waiting = 0;
  const lock = () => {
    const head = el.querySelectorAll("canvas")[model.get("head")];
    if (head) head.click();
    else waiting = requestAnimationFrame(lock);
  };
  model.on("change:panels", () => update(model.get("panels")));
  model.on("change:head", lock);
  lock();
  return () => cancelAnimationFrame(waiting);
}
export default { render };
