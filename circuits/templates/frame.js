// In a notebook's frame, the frame gets the height of the page.
if (window.frameElement)
  new ResizeObserver(() => { frameElement.style.height = `${document.body.scrollHeight + 8}px`; }).observe(document.body);
