// Appended to the code of attention viewers.
function render({ model, el }) {
  const update = showAttention(el, model.get("panels"));
  model.on("change:panels", () => update(model.get("panels")));
}
export default { render };
