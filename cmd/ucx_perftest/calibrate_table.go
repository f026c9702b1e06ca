package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/perf/report"
)

// Settings that --calibrate recommends values of.
const (
	threshHeap   = "SHM_FETCH_THRESH"
	threshMapped = "SHM_FETCH_MAPPED_THRESH"
	singleCopy   = "SHM_SINGLE_COPY"
	cooperative  = "SHM_COOPERATIVE_COPY"
)

// behind is how much slower than the best fixed way the default may be.
const behind = 1.10

// calibration prints the results of --calibrate.
type calibration struct {
	to     io.Writer
	style  report.Style
	set    *config.Set
	points []*point
	group  string // test and memory of the last row
	err    error  // the first error of to
}

func newCalibration(o *options, set *config.Set, to io.Writer) *calibration {
	c := &calibration{to: to, style: o.style, set: set}
	if c.style.CSV {
		c.print("test,memory,size,way,usec,of_default\n")
	}
	return c
}

func (c *calibration) print(format string, args ...any) {
	if c.err == nil {
		_, c.err = fmt.Fprintf(c.to, format, args...)
	}
}

// row prints the times of a point, unless -f is given.
func (c *calibration) row(p *point) {
	c.points = append(c.points, p)
	if c.style.CSV {
		for i, w := range p.ways {
			c.print("%s,%s,%d,%s,%.3f,%.3f\n", p.params.Test, p.memory, p.params.Size(), w.name, median(p.times[i])/1e3, p.ratio(w.name, defaultWay))
		}
		return
	}
	if c.style.FinalOnly {
		return
	}
	if group := p.group(); group != c.group {
		c.group = group
		c.print("\n%s: microseconds\n%10s", group, "bytes")
		for _, w := range p.ways {
			c.print(" %9s", w.name)
		}
		c.print("  default/best\n")
	}
	c.print("%10d", p.params.Size())
	for i := range p.ways {
		c.print(" %9.3f", median(p.times[i])/1e3)
	}
	best, r := p.best()
	mark := ""
	if r > behind {
		mark = " <"
	}
	c.print("  %.2f %s%s\n", r, best, mark)
}

// summary prints the crossings, the recommended settings, and where the default is behind.
func (c *calibration) summary() {
	if c.style.CSV || len(c.points) == 0 {
		return
	}
	c.print("\nShortest length from which a message is fetched sooner than it is sent through the ring\n")
	for i, p := range c.points {
		if i > 0 && c.points[i-1].group() == p.group() {
			continue
		}
		same := slices.DeleteFunc(slices.Clone(c.points), func(o *point) bool { return o.group() != p.group() })
		text := "none of these"
		if n := crossing(same); n > 0 {
			text = fmt.Sprint(n)
		}
		c.print("    %-24s %s\n", p.group(), text)
	}
	c.print("\nRecommended settings, and by how much the slowest message is behind the best way with them\n")
	for _, r := range recommend(c.points) {
		now := ""
		for v := range c.set.All() {
			if v.Name == r.setting {
				now = fmt.Sprintf("%s (%v)", v.Text, v.Origin)
			}
		}
		c.print("    %-30s %-8s %.2f   now %s\n", config.Prefix+r.setting, r.value, r.worst, now)
	}
	c.print("\nThe default is more than %.0f %% behind the best fixed setting at\n", (behind-1)*100)
	none := true
	for _, p := range c.points {
		if best, r := p.best(); r > behind {
			none = false
			c.print("    %-24s %8d bytes: %.0f %% behind %s\n", p.group(), p.params.Size(), (r-1)*100, best)
		}
	}
	if none {
		c.print("    none of these\n")
	}
}

// group names the points that differ in their length alone.
func (p *point) group() string { return p.params.Test + ", " + p.memory + " memory" }

// index returns the index of a way, -1 if the point does not have it.
func (p *point) index(name string) int {
	return slices.IndexFunc(p.ways, func(w way) bool { return w.name == name })
}

// ratio returns how many times the time of way b way a takes: the median of the rounds. It is infinite for a way that the
// point does not have.
func (p *point) ratio(a, b string) float64 {
	i, j := p.index(a), p.index(b)
	if i < 0 || j < 0 {
		return math.Inf(1)
	}
	var rs []float64
	for round := range min(len(p.times[i]), len(p.times[j])) {
		rs = append(rs, p.times[i][round]/p.times[j][round])
	}
	return median(rs)
}

// best returns the fixed way that the default is furthest behind, and how many times its time the default takes.
func (p *point) best() (name string, ratio float64) {
	for _, w := range p.ways {
		if r := p.ratio(defaultWay, w.name); w.name != defaultWay && r > ratio {
			name, ratio = w.name, r
		}
	}
	return name, ratio
}

// median returns the middle of the values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// fetch returns the way in which UCX_SHM_SINGLE_COPY=auto has the point's message fetched.
func (p *point) fetch() string {
	for _, name := range []string{"mapped", "cma"} {
		if p.index(name) >= 0 {
			return name
		}
	}
	return "ring"
}

// crossing returns the shortest length from which all messages are fetched sooner than they are sent eagerly, 0 if there
// is none. The points are of one group, by ascending lengths.
func crossing(ps []*point) (n int64) {
	for _, p := range slices.Backward(ps) {
		if p.ratio(p.fetch(), "eager") > 1 {
			break
		}
		n = p.params.Size()
	}
	return n
}

// recommendation is the value of a setting with which the worst of all points is least behind its best way.
type recommendation struct {
	setting, value string
	worst          float64
}

// recommend returns the recommendations that the points permit.
func recommend(points []*point) (rs []recommendation) {
	// slowest returns how far behind its best way the worst of some points is.
	slowest := func(has func(*point) bool, chosen func(*point) string) (worst float64) {
		for _, p := range points {
			if !has(p) {
				continue
			}
			way := chosen(p)
			for _, w := range p.ways {
				if w.name != defaultWay {
					worst = max(worst, p.ratio(way, w.name))
				}
			}
		}
		return worst
	}
	least := func(setting string, values []string, slowest func(value string) float64) {
		r := recommendation{setting: setting, worst: math.Inf(1)}
		for _, v := range values {
			if s := slowest(v); s > 0 && s < r.worst {
				r.value, r.worst = v, s
			}
		}
		if r.value != "" {
			rs = append(rs, r)
		}
	}
	tags := func(p *point) bool { return strings.HasPrefix(p.params.Test, "tag") }
	for _, m := range []struct {
		setting string
		heap    bool
	}{{threshHeap, true}, {threshMapped, false}} {
		var lengths []string
		has := func(p *point) bool { return tags(p) && p.params.SendHeap == m.heap }
		for _, p := range points {
			if text := config.Bytes(p.params.Size()).String(); has(p) && !contains(lengths, text) {
				lengths = append(lengths, text)
			}
		}
		least(m.setting, append(lengths, "inf"), func(value string) float64 {
			longest, _ := config.Size(0, config.Inf).Parse(value)
			return slowest(has, func(p *point) string {
				if config.Bytes(p.params.Size()) <= longest {
					return "eager"
				}
				return p.fetch()
			})
		})
	}
	// Of messages that every setting has announced: those that are fetched sooner than sent eagerly.
	long := func(p *point) bool { return p.ratio(p.fetch(), "eager") < 1 }
	least(singleCopy, []string{"auto", "mapped", "cma", "none"}, func(value string) float64 {
		return slowest(long, func(p *point) string {
			switch {
			case value == "auto":
				return p.fetch()
			case value == "mapped" && p.index("mapped") >= 0, value == "cma" && p.index("cma") >= 0:
				return value
			default:
				return "ring"
			}
		})
	})
	least(cooperative, []string{"y", "n"}, func(value string) float64 {
		return slowest(long, func(p *point) string {
			if way := p.fetch(); value == "n" && way != "ring" {
				return way + "-1"
			}
			return p.fetch()
		})
	})
	return rs
}
