package ucp

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats/live"
)

var rowStatsDest = config.New("STATS_DEST", live.Off, statsDest(), "",
	"Where a running program shows its endpoints, requests and counters to ucx_info --live. unix: a directory of this user's; empty: nowhere.")

// statsDest returns a parser that accepts the destinations of package live.
func statsDest() config.Parser[string] {
	p := config.String()
	text := p.Parse
	p.Parse = func(s string) (string, error) {
		s, err := text(s)
		if err == nil {
			err = live.CheckDestination(s)
		}
		return s, err
	}
	p.Allowed = "empty, unix, or unix:DIRECTORY"
	return p
}

// LiveDir returns the directory in which programs with these settings publish their live
// statistics. It returns "" if they publish none.
func LiveDir(set *config.Set) string { return live.Dir(rowStatsDest.Get(set)) }

// freshLimit bounds how long page waits for all workers' new summaries. A worker that is
// late is shown with its last summary.
const freshLimit = 100 * time.Millisecond

// publishStats publishes the context's live statistics if the settings ask for it.
func (x *Context) publishStats() error {
	dir := LiveDir(x.settings)
	if dir == "" {
		return nil
	}
	x.opened = ucs.Now()
	o, err := live.Serve(dir, x.statsPage)
	if err != nil {
		return err
	}
	if why := o.FallbackReason(); why != nil {
		x.log.Sugar().Warnf("live statistics are published in %s: %v", filepath.Dir(o.Path()), why)
	}
	x.liveStats = o
	return nil
}

// unpublishStats ends the publication that offer started.
func (x *Context) unpublishStats() error {
	if x.liveStats == nil {
		return nil
	}
	return x.liveStats.Close()
}

// statsPage returns the page that the context publishes. It runs on the goroutine of the
// live.Serve. It waits for no lock that a worker's owner holds for long.
func (x *Context) statsPage() *live.Page {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	p := &live.Page{
		Version: live.Version, PID: os.Getpid(), Command: slices.Clone(os.Args), Host: host,
		OpenSeconds: ucs.Now().Sub(x.opened).Seconds(),
		GoVersion:   runtime.Version(), MaxProcs: runtime.GOMAXPROCS(0), Goroutines: runtime.NumGoroutine(),
		Settings: []live.Setting{}, Workers: []live.Worker{},
	}
	for v := range x.settings.All() {
		if v.Origin.Kind != config.Default {
			p.Settings = append(p.Settings, live.Setting{Name: config.Prefix + v.Name, Value: v.Text, Origin: v.Origin.String()})
		}
	}
	limit := time.NewTimer(freshLimit)
	defer limit.Stop()
	workers := x.displayedWorkers()
	for _, w := range workers {
		w.t.show.request(&w.t)
	}
	for _, w := range workers {
		p.Workers = append(p.Workers, w.t.show.snapshot(&w.t, limit))
	}
	return p
}

// displayedWorkers returns the workers that have a display, sorted by name.
func (x *Context) displayedWorkers() (ws []*Worker) {
	x.mu.Lock()
	for c := range x.owned {
		if w, ok := c.(*Worker); ok && w.t.show != nil {
			ws = append(ws, w)
		}
	}
	x.mu.Unlock()
	slices.SortFunc(ws, func(a, b *Worker) int { return strings.Compare(shortID(a.t.id), shortID(b.t.id)) })
	return ws
}

// String returns the name that UCX's tools use.
func (m ThreadMode) String() string {
	switch m {
	case ThreadMulti:
		return "multi"
	case ThreadSerialized:
		return "serialized"
	case ThreadSingle:
		return "single"
	default:
		return fmt.Sprintf("thread mode %d", uint8(m))
	}
}
