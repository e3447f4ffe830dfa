// Appended to the code of attention viewers: the head that is chosen is locked, which takes a click once it is drawn.
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
