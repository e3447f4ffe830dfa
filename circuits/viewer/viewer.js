const APART = 30; // milliseconds between two events that are not to be taken as one

// Shows circuitsvis' AttentionHeads for every panel, side by side, and a slider where they have several frames.
// Returns how to show other panels of the same number and heads: whatever is locked stays so.
function showAttention(el, panels) {
  const steps = panels[0].frames.map((frame) => frame.label);
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, value: steps.length - 1 });
  slider.setAttribute("aria-label", "step of training");
  slider.style.width = "min(100%, 32em)";
  const label = document.createElement("output");
  const row = document.createElement("div");
  row.style.cssText = "display: flex; flex-wrap: wrap; gap: 2em; background: #fff; color: #000; padding: 4px";
  el.replaceChildren(...(steps.length > 1 ? [slider, " ", label] : []), row);

  const boxes = panels.map((panel, place) => {
    const box = document.createElement("div");
    box.id = `attention-viewer-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    const column = document.createElement("div");
    column.style.cssText = "flex: 1 1 24em; min-width: 0; position: relative";
    if (panel.title) column.append(Object.assign(document.createElement("h3"), { textContent: panel.title }));
    column.append(box);
    row.append(column);
    const shown = () => CircuitsVis.AttentionHeads(panels[place].frames[slider.value]);
    const begin = () =>
      box.isConnected ? CircuitsVis.render(box.id, shown, {}) : requestAnimationFrame(begin);
    begin();
    return box;
  });
  const draw = () => {
    label.textContent = steps[slider.value];
    boxes.forEach((box, place) => {
      // circuitsvis draws again when a head is pointed at or left: here both, at the one that is large already.
      const large = [...box.querySelectorAll("h3")].at(-1)?.textContent;
      const head = panels[place].frames[0].attentionHeadNames.findIndex((name) => large === `${name} Zoomed`);
      const point = (event) =>
        box.querySelectorAll("canvas")[head]?.dispatchEvent(new MouseEvent(event, { bubbles: true }));
      point("mouseover");
      setTimeout(() => point("mouseout"), APART);
    });
  };
  slider.addEventListener("input", draw);
  label.textContent = steps[slider.value];
  return (others) => {
    panels = others;
    draw();
  };
}
