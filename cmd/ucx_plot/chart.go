package main

import (
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/report"
)

// chart is one kind of diagram.
type chart struct {
	name, unit string
	// streams, latencies: drawn by default for tests of this kind.
	streams, latencies bool
	value              func(r *report.JSONRow) float64 // nil: the percentiles
}

var charts = []chart{
	{"latency", "latency (us)", false, true, func(r *report.JSONRow) float64 { return r.LatencyUsec.Overall }},
	{"bandwidth", "bandwidth (MiB/s)", true, false, func(r *report.JSONRow) float64 { return r.BandwidthMiB.Overall }},
	{"rate", "messages/s", false, false, func(r *report.JSONRow) float64 { return r.MessageRate.Overall }},
	{"percentiles", "latency (us)", false, true, nil},
}

func chartNames() []string {
	var names []string
	for _, c := range charts {
		names = append(names, c.name)
	}
	return names
}

// chooseCharts returns the charts of the command line; none: those that suit the tests.
func chooseCharts(names []string) ([]chart, error) {
	var chosen []chart
	for _, name := range names {
		i := slices.IndexFunc(charts, func(c chart) bool { return c.name == name })
		if i < 0 {
			return nil, usagef("-c %s: there is no such chart; known are %s", name, strings.Join(chartNames(), " "))
		}
		chosen = append(chosen, charts[i])
	}
	return chosen, nil
}

// percentiles are the lines of a chart of percentiles, by their keys in JSON.
var percentiles = []string{"p50", "p99", "p99.9", "max"}

// Lengths of the picture.
const (
	width       = 7 * vg.Inch // of a chart without its legend
	height      = 4 * vg.Inch
	titleHeight = vg.Inch / 2
	margin      = vg.Inch / 8
)

// draw writes the charts of all series, one below the other, as SVG. Without chosen charts it
// draws those that suit the tests.
func draw(w io.Writer, title string, all []*series, chosen []chart) error {
	type panel struct {
		plot   *plot.Plot
		legend plot.Legend
	}
	var panels []panel
	legendWidth := vg.Length(0)
	byDefault := len(chosen) == 0
	if byDefault {
		chosen = charts
	}
	for _, c := range chosen {
		suited := all
		if byDefault {
			suited = slices.DeleteFunc(slices.Clone(all), func(s *series) bool {
				if s.test.Pattern == perf.Stream {
					return !c.streams
				}
				return !c.latencies
			})
		}
		if len(suited) == 0 {
			continue
		}
		p, legend := c.panel(suited)
		panels = append(panels, panel{p, legend})
		box := legend.Rectangle(vgdraw.NewCanvas(vgsvg.New(width, height), width, height))
		legendWidth = max(legendWidth, box.Size().X)
	}
	above := vg.Length(0)
	if title != "" {
		above = titleHeight
	}
	fullWidth := width + legendWidth + 3*margin
	fullHeight := above + height*vg.Length(len(panels))
	svg := vgsvg.New(fullWidth, fullHeight)
	canvas := vgdraw.New(svg)
	canvas.FillPolygon(color.White, []vg.Point{{}, {X: fullWidth}, {X: fullWidth, Y: fullHeight}, {Y: fullHeight}})
	if title != "" {
		style := plot.New().Title.TextStyle
		style.Font.Size = 16
		style.XAlign, style.YAlign = vgdraw.XCenter, vgdraw.YCenter
		canvas.FillText(style, vg.Point{X: fullWidth / 2, Y: fullHeight - above/2}, title)
	}
	for i, p := range panels {
		top := above + height*vg.Length(i)
		bottom := fullHeight - top - height
		p.plot.Draw(vgdraw.Crop(canvas, margin, -legendWidth-2*margin, bottom+margin, -top-margin))
		p.legend.Draw(vgdraw.Crop(canvas, width+margin, -margin, bottom+margin, -top-margin-vg.Inch/3))
	}
	_, err := svg.WriteTo(w)
	return err
}

// panel returns the diagram of the series, and what stands beside it.
func (c *chart) panel(all []*series) (*plot.Plot, plot.Legend) {
	p, legend := plot.New(), plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	p.Y.Label.Text = c.unit
	p.Add(plotter.NewGrid())
	// One size each: the percentiles are the axis, and not one line each.
	nominal := c.value == nil && !slices.ContainsFunc(all, func(s *series) bool { return !s.single() })
	lowest, highest := math.Inf(1), 0.0
	add := func(points plotter.XYs, i, dashes int) []plot.Thumbnailer {
		points = slices.DeleteFunc(points, func(xy plotter.XY) bool { return !(xy.Y > 0) || math.IsInf(xy.Y, 0) })
		for _, xy := range points {
			lowest, highest = min(lowest, xy.Y), max(highest, xy.Y)
		}
		line := &plotter.Line{XYs: points, LineStyle: plotter.DefaultLineStyle}
		line.Color, line.Width, line.Dashes = plotutil.Color(i), vg.Points(1.5), plotutil.Dashes(dashes)
		dots := &plotter.Scatter{XYs: points, GlyphStyle: plotter.DefaultGlyphStyle}
		dots.Color, dots.Shape, dots.Radius = plotutil.Color(i), vgdraw.CircleGlyph{}, vg.Points(2)
		if round := i / len(plotutil.SoftColors); round > 0 { // the colors repeat
			dots.Shape, dots.Radius = plotutil.Shape(round), vg.Points(3)
		}
		if len(points) > 0 { // an empty line has no range
			p.Add(line, dots)
		}
		return []plot.Thumbnailer{line, dots}
	}
	for i, s := range all {
		var thumbs []plot.Thumbnailer
		switch {
		case nominal:
			for _, r := range s.rows {
				var points plotter.XYs
				for x, name := range percentiles {
					points = append(points, plotter.XY{X: float64(x), Y: r.Result.Percentiles[name]})
				}
				thumbs = add(points, i, 0)
			}
		case c.value == nil:
			for d := len(percentiles) - 1; d >= 0; d-- { // the last thumbnail is the full line
				thumbs = add(s.points(func(r *report.JSONRow) float64 { return r.Result.Percentiles[percentiles[d]] }), i, d)
			}
		default:
			thumbs = add(s.points(c.value), i, 0)
		}
		legend.Add(s.label, thumbs...)
	}
	if nominal {
		p.Title.Text = c.name
		p.NominalX(percentiles...)
		p.X.Min, p.X.Max = -0.25, float64(len(percentiles))-0.75
	} else {
		p.Title.Text = c.name + " over message size"
		p.X.Label.Text = "message size (bytes)"
		ticks := sizeTicks(all)
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		p.X.Min, p.X.Max = ticks[0].Value, ticks[len(ticks)-1].Value
		if c.value == nil {
			for d, name := range percentiles {
				line := &plotter.Line{LineStyle: plotter.DefaultLineStyle}
				line.Width, line.Dashes = vg.Points(1.5), plotutil.Dashes(d)
				legend.Add(name, line)
			}
		}
	}
	switch {
	case highest == 0: // no value can be drawn
		p.Y.Min, p.Y.Max = 0, 1
	case highest > 20*lowest:
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Y.Min = math.Pow(10, math.Floor(math.Log10(lowest)))
		p.Y.Max = math.Pow(10, math.Ceil(math.Log10(highest)))
	default:
		p.Y.Min, p.Y.Max = 0, 1.1*highest
	}
	return p, legend
}

// points returns a value of each result over its size.
func (s *series) points(value func(*report.JSONRow) float64) plotter.XYs {
	var points plotter.XYs
	for i := range s.rows {
		points = append(points, plotter.XY{X: sizeX(s.rows[i].Result.Size), Y: value(&s.rows[i])})
	}
	return points
}

// sizeX returns where a size stands on the axis: at its logarithm, 0 one step before 1.
func sizeX(size int64) float64 {
	if size <= 0 {
		return -1
	}
	return math.Log2(float64(size))
}

// sizeTicks returns the ticks of the axis of sizes: powers of two that enclose all sizes, with at
// most a dozen labels.
func sizeTicks(all []*series) []plot.Tick {
	first, last := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		first = min(first, math.Floor(sizeX(s.rows[0].Result.Size)))
		last = max(last, math.Ceil(sizeX(s.rows[len(s.rows)-1].Result.Size)))
	}
	if first == last {
		first, last = max(first-1, -1), last+1
	}
	step := int(last-first)/12 + 1
	var ticks []plot.Tick
	for x := int(first); x <= int(last); x++ {
		t := plot.Tick{Value: float64(x)}
		if x < 0 || x%step == 0 {
			t.Label = sizeLabel(x)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// sizeLabel returns the size at x of the axis in UCX's spelling: 0, 1, 512, 1K.
func sizeLabel(x int) string {
	if x < 0 {
		return "0"
	}
	return strconv.Itoa(1<<(x%10)) + []string{"", "K", "M", "G", "T", "P", "E"}[x/10]
}
