package report

import (
	"fmt"
	"strings"

	"github.com/goucx/goucx/perf"
)

// table prints like UCX 1.13's tool without -v.
type table struct {
	output
	style Style
	names []string
	batch bool
	shown string // the transports that were printed last
}

// Lines of the frame.
const (
	full  = "+----------------------------------------------------------------------------------------------------------+\n"
	over  = "+--------------+--------------+------------------------------+---------------------+-----------------------+\n"
	under = "+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+\n"
)

// Header prints the box and the column headings.
func (t *table) Header(h Header) {
	t.batch, t.shown = len(h.Columns) > 0, h.Transports
	text := box(h)
	if text == "" && h.Transports != "" {
		text = full + boxLine("Transport:", h.Transports)
	}
	switch {
	case h.Results:
		text += heads(h, t.style)
	case h.Box:
		text += full
	}
	t.write(text)
}

// box returns the description of the run.
func box(h Header) string {
	if !h.Box || h.Test == nil {
		return ""
	}
	layout := "(automatic)"
	if h.Test.API == perf.UCT {
		layout = string(h.Params.Layout)
	}
	var b strings.Builder
	b.WriteString(full)
	for _, l := range [][2]string{
		{"API:", h.Test.API.Title()},
		{"Test:", h.Test.Desc},
		{"Data layout:", layout},
		{"Send memory:", memory(h.Params.SendHeap)},
		{"Recv memory:", memory(h.Params.RecvHeap)},
		{"Message size:", fmt.Sprint(h.Params.Size())},
	} {
		b.WriteString(boxLine(l[0], l[1]))
	}
	if h.Test.API == perf.UCP && h.Test.Op == perf.OpAM {
		b.WriteString(boxLine("AM header size:", fmt.Sprint(max(h.Params.AMHeader, 0))))
	}
	if h.Transports != "" {
		b.WriteString(boxLine("Transport:", h.Transports))
	}
	return b.String()
}

func boxLine(name, text string) string {
	return fmt.Sprintf("| %-105s|\n", fmt.Sprintf("%-13s %s", name, text))
}

func heads(h Header, s Style) string {
	unit := "overhead"
	if h.Test != nil {
		unit = h.Test.Unit
	}
	stage := "Stage "
	if s.FinalOnly {
		stage = " Test "
	}
	return over +
		fmt.Sprintf("|              |              |       %8s (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n", unit) +
		under +
		fmt.Sprintf("|    %s    | # iterations | %4.1f%%ile | average | overall |  average |  overall |  average  |  overall  |\n", stage, h.Params.Rank) +
		under
}

// Begin prints the names of a batch run above a line of the frame.
func (t *table) Begin(names []string, _ *perf.Params) {
	t.names = names
	if !t.batch || t.style.FinalOnly {
		return
	}
	line := []byte(strings.TrimSuffix(under, "\n"))
	copy(line[1:len(line)-1], strings.Join(names, "/"))
	t.write(string(line) + "\n")
}

// Transports prints a line of the box if the transports are not those that were printed last.
func (t *table) Transports(names string) {
	if names != "" && names != t.shown {
		t.write(boxLine("Transport:", names))
		t.shown = names
	}
}

// Row prints a row.
func (t *table) Row(r perf.Report) {
	var label string
	switch {
	case !r.Final && t.style.FinalOnly:
		return
	case !r.Final:
		label = threadLabel(r)
	case t.style.FinalOnly:
		label = strings.Join(t.names, "/")
	default:
		label = "Final:    "
	}
	extra := ""
	if t.style.Extra {
		extra = "  " + t.shown
	}
	if r.Sum {
		t.write(fmt.Sprintf("%10s%18s %29.3f %22.2f %23s%s\n", label, t.integer(float64(r.Iterations)),
			micro(r.LatencyTotal), mebi(r.BytesTotal), t.integer(r.MessagesTotal), extra))
		return
	}
	t.write(fmt.Sprintf("%10s%18s %10.3f %9.3f %9.3f %11.2f %10.2f %11s %11s%s\n", label, t.integer(float64(r.Iterations)),
		micro(r.Percentile), micro(r.LatencyMoment), micro(r.LatencyTotal), mebi(r.BytesMoment), mebi(r.BytesTotal),
		t.integer(r.MessagesMoment), t.integer(r.MessagesTotal), extra))
}

// threadLabel returns the beginning of a row that is not the last.
func threadLabel(r perf.Report) string { return fmt.Sprintf("[thread %d]", r.Thread) }

// End prints the transports if a lane failed over, the figures of the device, and the percentiles if
// they are requested.
func (t *table) End(r *perf.Result) {
	if t.shown != "" {
		t.Transports(r.Transports)
	}
	t.figures("Per message", r.PerMessage)
	t.figures("Resources", r.Resources)
	if !t.style.Percentiles {
		return
	}
	each := "each message"
	if r.StampEvery > 1 {
		each = fmt.Sprintf("means of %d messages", r.StampEvery)
	}
	t.write(fmt.Sprintf("Percentiles (usec): p50 %.3f, p99 %.3f, p99.9 %.3f, max %.3f (%s; %d samples)\n",
		micro(r.P50), micro(r.P99), micro(r.P999), micro(r.Max), each, r.Samples))
}

// figures prints a line of figures, if there are any.
func (t *table) figures(title string, list []perf.Figure) {
	var items []string
	for _, f := range list {
		items = append(items, fmt.Sprintf("%s %.6g", f.Name, f.Value))
	}
	if len(items) > 0 {
		t.write(title + ": " + strings.Join(items, ", ") + "\n")
	}
}

func (t *table) integer(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	if t.style.Numeric {
		return thousands(s)
	}
	return s
}

// thousands inserts a comma before each group of three digits.
func thousands(s string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		sign, s = "-", rest
	}
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// memory returns the name of a kind of memory, as -m spells it.
func memory(heap bool) string {
	if heap {
		return "heap"
	}
	return "host"
}
