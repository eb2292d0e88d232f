const charts = Object.entries(FIGURES).map(([name, figure]) => {
  const place = document.getElementById(name);
  Plotly.newPlot(place, figure.data, figure.layout, {
    displayModeBar: false, responsive: true, scrollZoom: false,
  });
  return place;
});
// On paper nothing is folded, and a chart is as wide as the page.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
  charts.forEach((place) => Plotly.relayout(place, { width: 660, autosize: false }));
});
addEventListener("afterprint", () => {
  folded.forEach((part) => { part.open = false; });
  charts.forEach((place) => Plotly.relayout(place, { width: null, autosize: true }));
});
