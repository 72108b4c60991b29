// ------------------------------------------------------------------------------------------ the page

const descriptions = JSON.parse(document.getElementById("charts").textContent);
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const description = descriptions[figure.dataset.chart];
  const draw = kinds[description.kind](figure, description);
  let width = 0;
  const fit = () => {
    if (figure.clientWidth === width) return;
    width = figure.clientWidth;
    draw(width);
  };
  fit();
  new ResizeObserver(fit).observe(figure);
}
