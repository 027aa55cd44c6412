"use strict";
// Draws every figure as wide as the page has room for and in its colours, and lets its legend show and hide series.
(function () {
  var NARROW = 720;
  var root = document.documentElement;
  var page = JSON.parse(document.getElementById("charts").textContent);
  // On paper a page is as by day.
  var dark = window.matchMedia("screen and (prefers-color-scheme: dark)");
  var config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };

  function atNight(colour) {
    var parts = /^rgba\((\d+),(\d+),(\d+),(.*)\)$/.exec(colour);
    if (!parts) return page.night[colour] || colour;
    var hex = "#" + parts.slice(1, 4).map(function (part) { return (+part + 256).toString(16).slice(1); }).join("");
    var found = page.night[hex.toUpperCase()];
    if (!found) return colour;
    var channels = [1, 3, 5].map(function (i) { return parseInt(found.slice(i, i + 2), 16); });
    return "rgba(" + channels.join(",") + "," + parts[4] + ")";
  }

  // plotly.js writes into what it is given, so each drawing has a copy. Only entries that are colours change, for names
  // are data.
  function copied(value, name) {
    if (Array.isArray(value)) return value.map(function (each) { return copied(each, ""); });
    if (value && typeof value === "object") {
      return Object.keys(value).reduce(function (copy, key) {
        copy[key] = copied(value[key], key);
        return copy;
      }, {});
    }
    return dark.matches && typeof value === "string" && /color$/.test(name) ? atNight(value) : value;
  }

  function pressed(button) { return button.getAttribute("aria-pressed") === "true"; }
  function press(button, on) { button.setAttribute("aria-pressed", on ? "true" : "false"); }

  page.charts.forEach(function (chart) {
    var node = document.getElementById("plot-" + chart.key);
    var holder = document.getElementById("legend-" + chart.key);
    var names = Array.prototype.slice.call(holder.querySelectorAll("[data-label]"));
    var bands = holder.querySelector("[data-bands]");
    var narrow = false;

    function traces() {
      var hidden = {};
      names.forEach(function (button) { if (!pressed(button)) hidden[button.dataset.label] = true; });
      var all = !bands || pressed(bands);
      return chart.data.map(function (trace) {
        var copy = copied(trace, "");
        copy.visible = !hidden[trace.legendgroup] && (all || !trace.fill);
        if (!all) delete copy.error_y;
        return copy;
      });
    }

    function draw(how) {
      narrow = node.clientWidth < NARROW;
      // A finger has no use for the buttons, and they take a line.
      config.displayModeBar = narrow ? false : "hover";
      return window.Plotly[how](node, traces(), copied(narrow ? chart.narrow : chart.wide, ""), config);
    }

    function redraw() { draw("react"); }

    function toggle(button) {
      button.addEventListener("click", function () { press(button, !pressed(button)); redraw(); });
    }

    names.forEach(function (button) {
      toggle(button);
      button.addEventListener("dblclick", function () {
        var alone = names.every(function (other) { return other === button || !pressed(other); });
        names.forEach(function (other) { press(other, alone || other === button); });
        redraw();
      });
    });
    if (bands) toggle(bands);
    draw("newPlot").then(function () { root.dataset.drawn = String(+(root.dataset.drawn || 0) + 1); });
    dark.addEventListener("change", redraw);
    window.addEventListener("resize", function () { if (node.clientWidth < NARROW !== narrow) redraw(); });
  });
})();
