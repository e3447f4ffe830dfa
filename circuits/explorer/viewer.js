// Appended to circuitsvis, which makes CircuitsVis: shows one attention viewer, and another one when its data change.
function render({ model, el }) {
  const draw = () => {
    const box = document.createElement("div");
    box.id = `attention-viewer-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    box.style.cssText = "background: #fff; color: #000; padding: 4px";
    el.replaceChildren(box);
    const shown = () =>
      box.isConnected ? CircuitsVis.render(box.id, CircuitsVis.AttentionHeads, model.get("data")) : requestAnimationFrame(shown);
    shown();
  };
  model.on("change:data", draw);
  draw();
}
export default { render };
