// Shows circuitsvis' AttentionHeads for every panel, side by side, with a slider if the panels have several frames.
// Returns a function that shows other panels, as many and with the same heads; a locked head stays locked.
// A panel is drawn when it is nearly in sight. Then the attribute data-drawn of its attention-panel is the label of the step.
function showAttention(el, panels) {
  const steps = panels[0].frames.map(({ step }) => (step === null ? "" : `step ${step.toLocaleString("en")}`));
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: steps.length - 1, value: steps.length - 1 });
  slider.setAttribute("aria-label", "step of training");
  slider.style.width = "min(100%, 32em)";
  const label = document.createElement("output");
  const row = document.createElement("div");
  row.style.cssText = "display: flex; flex-wrap: wrap; gap: 2em; background: #fff; color: #000; padding: 4px";
  el.replaceChildren(...(steps.length > 1 ? [slider, " ", label] : []), row);

  const views = [];
  panels.forEach(({ title }, place) => {
    const box = Object.assign(document.createElement("div"), { className: "attention-panel" });
    box.id = `attention-viewer-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    const column = document.createElement("div");
    column.style.cssText = "flex: 1 1 24em; min-width: 0; min-height: 20em; position: relative";
    if (title) column.append(Object.assign(document.createElement("h3"), { textContent: title }));
    column.append(box);
    row.append(column);
    // circuitsvis does not export its React, so this component is written by hand; it can be redrawn.
    class View {
      box = box;
      componentDidMount() {
        views.push(this);
        draw(this);
      }
      render() {
        const { tokens, attention, heads } = panels[place].frames[slider.value];
        const props = { tokens, attention, attentionHeadNames: heads };
        const element = { type: CircuitsVis.AttentionHeads, props, key: null, ref: null, _owner: null };
        return { $$typeof: Symbol.for("react.element"), ...element };
      }
    }
    View.prototype.isReactComponent = {};
    const begin = () => {
      near.disconnect();
      removeEventListener("beforeprint", begin);
      column.style.minHeight = "0";
      if (box.isConnected) CircuitsVis.render(box.id, View, {});
    };
    const near = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && begin(), { rootMargin: "50%" });
    near.observe(column);
    addEventListener("beforeprint", begin);
  });
  const draw = (view) => {
    const step = steps[slider.value];
    delete view.box.dataset.drawn;
    const update = (done) => view.updater.enqueueForceUpdate(view, done);
    // Charts are drawn after an update, before the next one begins.
    update(() => update(() => {
      reach(view.box);
      if (steps[slider.value] === step) view.box.dataset.drawn = step;
    }));
  };
  // The heads by keyboard and for screen readers, and the zoomed one beside the selector, where there is room.
  const reach = (box) => {
    const all = box.firstElementChild;
    all.style.cssText += "; display: grid; column-gap: 2em; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22em), 1fr))";
    for (const part of all.children) if (!part.querySelector("canvas")) part.style.gridColumn = "1 / -1";
    const selector = [...all.children].find((part) => part.querySelector("h4"));
    Object.assign(selector.style, { flexWrap: "wrap", alignContent: "start" });
    for (const column of selector.children) column.style.cssText += "; flex: 0 0 7em; max-width: 7em";
    for (const name of all.querySelectorAll("h4, h2")) {
      const head = name.parentElement, canvas = head.querySelector("canvas");
      canvas?.setAttribute("role", "img");
      canvas?.setAttribute("aria-label", `attention of ${name.textContent}`);
      if (name.tagName === "H2") continue;
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      head.setAttribute("aria-label", `lock ${name.textContent}`);
      head.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        head.click();
      };
    }
  };
  const drawAll = () => {
    label.textContent = steps[slider.value];
    views.forEach(draw);
  };
  slider.addEventListener("input", drawAll);
  drawAll();
  return (others) => {
    panels = others;
    drawAll();
  };
}
