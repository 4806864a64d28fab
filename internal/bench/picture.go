package bench

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A picture shows a series: a panel per figure, both axes logarithmic. It stands in Markdown pages, so it brings its own
// background and colours for light and for dark, and no script.
const (
	panelWidth, panelHeight = 316, 232
	plotLeft, plotRight     = 56, 14 // room beside the plot in its panel
	plotTop, plotBottom     = 34, 40
	headHeight, footHeight  = 46, 56
	panelColumns            = 3
)

const pictureStyle = `text{font:11px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#57606a}
.ground{fill:#ffffff}.title{font-size:15px;font-weight:600;fill:#1f2328}.name{font-weight:600;fill:#1f2328}.value{fill:#0550ae}
.grid{stroke:#d8dee4;stroke-width:1}.curve{stroke:#0969da;stroke-width:2;fill:none}.dot{fill:#0969da}
.bytes{stroke:#bc4c00;stroke-width:1.6;stroke-dasharray:1 4;stroke-linecap:round;fill:none}
.size{stroke:#6e7781;stroke-width:1.2;stroke-dasharray:7 4;fill:none}
@media (prefers-color-scheme:dark){text{fill:#9198a1}.ground{fill:#0d1117}.title,.name{fill:#f0f6fc}.value{fill:#79c0ff}.grid{stroke:#2a313c}
.curve{stroke:#4493f8}.dot{fill:#4493f8}.bytes{stroke:#ff9b52}.size{stroke:#8b949e}}`

// picture draws the series as SVG.
func (s *Series) picture() []byte {
	var figures []*Figure
	for _, name := range growthNames(s.Name) {
		if i := slices.IndexFunc(s.Figures, func(f *Figure) bool { return f.Name == name && largestValue(f.Values) > 0 }); i >= 0 {
			figures = append(figures, s.Figures[i])
		}
	}
	rows := (len(figures) + panelColumns - 1) / panelColumns
	width, height := panelColumns*panelWidth, headHeight+rows*panelHeight+footHeight
	var b bytes.Buffer
	title := html.EscapeString(s.Title)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s: how cost grows">`+"\n<style>%s</style>\n",
		width, height, width, height, title, pictureStyle)
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d"/>`+"\n"+`<text class="title" x="16" y="28">%s</text>`+"\n", width, height, title)
	for i, f := range figures {
		s.panel(&b, f, i%panelColumns*panelWidth, headHeight+i/panelColumns*panelHeight)
	}
	y := height - 34
	fmt.Fprintf(&b, `<line class="curve" x1="16" y1="%d" x2="44" y2="%d"/><text x="50" y="%d">measured</text>`+"\n", y-4, y-4, y)
	fmt.Fprintf(&b, `<line class="bytes" x1="126" y1="%d" x2="154" y2="%d"/><text x="160" y="%d">linear in the bytes that passed, laid against the curve from below: a curve that leaves it upwards to the right grows faster</text>`+"\n", y-4, y-4, y)
	if s.uneven() {
		fmt.Fprintf(&b, `<line class="size" x1="126" y1="%d" x2="154" y2="%d"/><text x="160" y="%d">linear in the %s</text>`+"\n", y+14, y+14, y+18, html.EscapeString(s.Axis))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func largestValue(list []float64) float64 {
	most := 0.0
	for _, v := range list {
		most = max(most, v)
	}
	return most
}

// uneven says that the bytes that passed do not grow as the size does.
func (s *Series) uneven() bool {
	n := len(s.Sizes) - 1
	return n > 0 && s.Bytes[n]/s.Bytes[0] > 1.5*float64(s.Sizes[n])/float64(s.Sizes[0])
}

// axis maps values to places, logarithmically.
type axis struct{ low, high, from, to float64 }

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// newAxis has room for all values that are not zero, in whole decades or, where that would be too coarse, in parts of them.
func newAxis(values []float64, from, to float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 {
			low, high = min(low, math.Log10(v)), max(high, math.Log10(v))
		}
	}
	room := max((high-low)*.08, .08)
	low, high = low-room, high+room
	if high-low < 1 { // else noise would look like growth
		middle := (low + high) / 2
		low, high = middle-.5, middle+.5
	}
	return axis{low, high, from, to}
}

// ticks are round numbers within the axis.
func (a axis) ticks() (list []float64) {
	factors := []float64{1}
	if a.high-a.low < 2 {
		factors = []float64{1, 2, 5}
	}
	step := max(1, int(math.Ceil((a.high-a.low)/6)))
	for decade := int(math.Floor(a.low)); decade <= int(math.Ceil(a.high)); decade++ {
		for _, f := range factors {
			if v := f * math.Pow10(decade); math.Log10(v) >= a.low && math.Log10(v) <= a.high && decade%step == 0 {
				list = append(list, v)
			}
		}
	}
	return list
}

// panel draws one figure with its upper left corner at left, top.
func (s *Series) panel(b *bytes.Buffer, f *Figure, left, top int) {
	x0, x1 := float64(left+plotLeft), float64(left+panelWidth-plotRight)
	y0, y1 := float64(top+panelHeight-plotBottom), float64(top+plotTop)
	sizes := make([]float64, len(s.Sizes))
	for i, n := range s.Sizes {
		sizes[i] = float64(n)
	}
	x := axis{math.Log10(sizes[0]) - .04, math.Log10(sizes[len(sizes)-1]) + .04, x0 + 8, x1 - 8}
	y := newAxis(f.Values, y0, y1)
	fmt.Fprintf(b, `<text class="name" x="%d" y="%d">%s, %s</text>`+"\n", left+16, top+20, html.EscapeString(f.Title), html.EscapeString(f.Unit))
	for _, v := range y.ticks() {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			x0, y.at(v), x1, y.at(v), x0-6, y.at(v)+4, shown(v))
	}
	for i, v := range sizes {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x.at(v), y0, x.at(v), y1)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x.at(v), y0+15, sizeName(s.Sizes[i]))
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", (x0+x1)/2, y0+29, html.EscapeString(s.Axis))
	clip := fmt.Sprintf("%s-%s", s.Name, f.Name)
	fmt.Fprintf(b, `<clipPath id="%s"><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></clipPath><g clip-path="url(#%s)">`+"\n", clip, x0, y1, x1-x0, y0-y1, clip)
	if s.uneven() {
		line(b, "size", x, y, sizes, below(f.Values, sizes))
	}
	line(b, "bytes", x, y, sizes, below(f.Values, f.Bytes))
	line(b, "curve", x, y, sizes, f.Values)
	for i, v := range f.Values {
		if v > 0 {
			fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="3"><title>%s: %s %s</title></circle>`, x.at(sizes[i]), y.at(v), sizeName(s.Sizes[i]), shown(v), html.EscapeString(f.Unit))
		}
	}
	b.WriteString("</g>\n")
	if last := f.Values[len(f.Values)-1]; last > 0 {
		fmt.Fprintf(b, `<text class="value" x="%.1f" y="%.1f" text-anchor="end">%s %s</text>`+"\n", x1, float64(top+20), shown(last), html.EscapeString(f.Unit))
	}
}

// below is the line that is proportional to a measure and touches the values from below.
func below(values, measure []float64) []float64 {
	factor := math.Inf(1)
	for i, v := range values {
		if v > 0 {
			factor = min(factor, v/measure[i])
		}
	}
	out := make([]float64, len(measure))
	for i, m := range measure {
		out[i] = factor * m
	}
	return out
}

// line draws values; what is not above zero has no place on a logarithmic axis.
func line(b *bytes.Buffer, class string, x, y axis, at, values []float64) {
	var points []string
	for i, v := range values {
		if v > 0 && !math.IsInf(v, 0) {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(at[i]), y.at(v)))
		}
	}
	fmt.Fprintf(b, `<polyline class="%s" points="%s"/>`+"\n", class, strings.Join(points, " "))
}
