package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/ucs/platform"
)

// --calibrate shm: each message length is sent in each way in which shm can copy it, and as the settings say. The ways are
// measured in turn, in several rounds, since the speed of a machine changes from one second to the next. So times are
// compared within a round, and the median of these ratios counts.

// way is a way to copy a message: settings that hold for it alone.
type way struct {
	name     string
	settings map[string]string
	// rndv: the message is announced; allocated: only memory that goucx has allocated takes this way; calls: it needs
	// process_vm_readv.
	rndv, allocated, calls bool
}

// The ways, as settings. The default has none of its own.
var ways = []way{
	{name: "eager", settings: map[string]string{"rndv_thresh": "inf"}},
	{name: "ring", settings: map[string]string{"shm_single_copy": "none"}, rndv: true},
	{name: "cma", settings: map[string]string{"shm_single_copy": "cma"}, rndv: true, calls: true},
	{name: "cma-1", settings: map[string]string{"shm_single_copy": "cma", "shm_cooperative_copy": "n"}, rndv: true, calls: true},
	{name: "mapped", settings: map[string]string{"shm_single_copy": "mapped"}, rndv: true, allocated: true},
	{name: "mapped-1", settings: map[string]string{"shm_single_copy": "mapped", "shm_cooperative_copy": "n"}, rndv: true, allocated: true},
	{name: defaultWay},
}

const (
	defaultWay = "default"
	// calibrateMin and calibrateMax bound the lengths: shorter messages are never fetched.
	calibrateMin, calibrateMax = 1 << 10, 4 << 20
)

// rounds is the number of measurements of each way and length. A variable, for the tests.
var rounds = 11

// calibrated are the tests that --calibrate runs.
var calibrated = []string{"tag_lat", "tag_bw", "ucp_am_lat", "ucp_am_bw"}

// point is what is measured in all ways: a test, with one kind of memory and one length.
type point struct {
	params perf.Params
	memory string
	ways   []way
	// times are in ns: of each round, by way. They are half a round trip, or the time from one message to the next.
	times [][]float64
}

// calibrateRun is the body of a run record to the peer.
type calibrateRun struct {
	Params   perf.Params       `json:"params"`
	Settings map[string]string `json:"settings"`
}

// calibrateEnv makes this program the peer: it prints the port at which it waits, and ends with its stdin.
const calibrateEnv = "GOUCX_PERFTEST_CALIBRATE_PEER"

// checkCalibrate returns an error for options that --calibrate does not use.
func (o *options) checkCalibrate() error {
	for _, c := range []struct {
		given bool
		name  string
	}{
		{o.host != "", "a server's host name"},
		{o.loopback, "-l"},
		{len(o.batch) > 0, "-b"},
		{o.plot != "", "--plot"},
		{o.pcap != "", "--pcap"},
		{o.style.JSON, "--json"},
		{o.style.Percentiles, "--percentiles"},
	} {
		if c.given {
			return usagef("--calibrate %s does not take %s: it starts both of its processes, and its results are a table, or -v", o.calibrate, c.name)
		}
	}
	for _, name := range o.given {
		if !contains([]string{"test", "size", "memory", "iterations", "warmup"}, name) {
			return usagef("--calibrate %s does not take --%s; of the options of a test it takes -t -s -m -n -w", o.calibrate, name)
		}
	}
	if o.Test != "" && !contains(calibrated, o.Test) {
		return usagef("--calibrate %s measures %s, not %s", o.calibrate, strings.Join(calibrated, " "), o.Test)
	}
	if contains(o.given, "size") {
		for _, n := range o.Sizes {
			if n < calibrateMin || n > calibrateMax {
				return usagef("--calibrate %s: length %d is out of range: %d-%d; shorter messages are never fetched", o.calibrate, n, calibrateMin, calibrateMax)
			}
		}
	}
	if contains(o.given, "iterations") && o.Iterations == 0 {
		return usagef("--calibrate %s: -n 0 has no end", o.calibrate)
	}
	if len(o.cpus) == 1 {
		return usagef("--calibrate %s: -c takes two processors, one for each process", o.calibrate)
	}
	return nil
}

// calibrate executes --calibrate, or is the peer that it starts.
func calibrate(o *options, stdout, stderr io.Writer) (err error) {
	warnTo := stderr
	isPeer := os.Getenv(calibrateEnv) != ""
	if err := o.checkCalibrate(); err != nil && !isPeer {
		return err
	}
	if isPeer || o.quiet {
		warnTo = io.Discard
	}
	set, logger, closeLog, err := settings(warnTo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	if isPeer {
		if err := pin(o.cpus); err != nil {
			return err
		}
		return calibratePeer(o, set, logger, stdout)
	}
	points, err := o.points(set, warnTo)
	if err != nil {
		return err
	}
	if len(o.cpus) > 0 {
		if err := pin(o.cpus[:1]); err != nil {
			return err
		}
	}
	conn, end, err := startPeer(o, stderr)
	if err != nil {
		return fmt.Errorf("start the other process: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	s := &session{options: o, stdout: stdout, stderr: stderr}
	s.config = perf.Config{Providers: transports.All(), Log: logger, Interval: o.interval}
	s.host = "127.0.0.1" // this side measures
	defer s.catchInterrupt(conn)()
	r := newCalibration(o, set, stdout)
	for i := range points {
		if err = s.orInterrupted(s.measurePoint(conn, set, &points[i])); err != nil {
			break
		}
		r.row(&points[i])
	}
	r.summary()
	if err != nil {
		return err
	}
	if err := conn.Send(kindEnd, nil); err != nil {
		return err
	}
	return r.err
}

// points returns what is to be measured under the settings of the default.
func (o *options) points(set *config.Set, warnTo io.Writer) (ps []point, err error) {
	read, _ := platform.TryCopy()
	if read != nil {
		fmt.Fprintf(warnTo, "ucx_perftest: note: copies by system calls are left out: %v\n", read)
	}
	sizes := o.Sizes
	if !contains(o.given, "size") {
		sizes = nil
		for n := int64(calibrateMin); n <= calibrateMax; n *= 2 {
			sizes = append(sizes, n)
		}
		for _, n := range thresholds(set) {
			if n >= calibrateMin && n < calibrateMax {
				sizes = append(sizes, n, n+1)
			}
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	tests := calibrated
	if o.Test != "" {
		tests = []string{o.Test}
	}
	memories := [][2]bool{{true, true}, {false, false}}
	if contains(o.given, "memory") {
		memories = [][2]bool{{o.SendHeap, o.RecvHeap}}
	}
	for _, test := range tests {
		for _, m := range memories {
			for _, n := range sizes {
				p := point{params: o.Params}
				p.params.Test, p.params.Sizes, p.params.SendHeap, p.params.RecvHeap = test, []int64{n}, m[0], m[1]
				p.memory = memoryValue(&m[0], &m[1]).String()
				if !contains(o.given, "iterations") {
					most := int64(4000)
					if strings.HasSuffix(test, "_bw") {
						most = 16000 // they take less time
					}
					p.params.Iterations = min(max(128<<20/n, 32), most)
				}
				if err := p.params.Check(); err != nil {
					return nil, usageError{inLine{err}}
				}
				for _, w := range ways {
					if w.allocated && m[0] || w.calls && read != nil {
						continue
					}
					if w.rndv {
						w.settings = withThresh(w.settings, n)
					}
					p.ways = append(p.ways, w)
				}
				p.times = make([][]float64, len(p.ways))
				ps = append(ps, p)
			}
		}
	}
	return ps, nil
}

// withThresh returns the settings under which a message of n bytes is announced too.
func withThresh(settings map[string]string, n int64) map[string]string {
	s := map[string]string{"rndv_thresh": strconv.FormatInt(n-1, 10)}
	maps.Copy(s, settings)
	return s
}

// thresholds returns the lengths at which messages over shm change their way under the settings.
func thresholds(set *config.Set) (ns []int64) {
	for v := range set.All() {
		if !contains([]string{"RNDV_THRESH", threshHeap, threshMapped}, v.Name) {
			continue
		}
		if n, err := parseLength(v.Text); err == nil {
			ns = append(ns, n)
		} else if v.Text == "auto" && v.Name == threshHeap {
			n, _ := shm.FetchThresh(set)
			ns = append(ns, int64(n))
		} else if v.Text == "auto" {
			ns = append(ns, 64<<10)
		}
	}
	return ns
}

// measurePoint measures all ways of a point, in rounds.
func (s *session) measurePoint(conn *rte.Conn, set *config.Set, p *point) error {
	for round := range rounds {
		for k := range p.ways {
			i := (round + k) % len(p.ways)
			ns, err := s.measureWay(conn, set, p, i)
			if err != nil {
				return fmt.Errorf("%s, %s memory, %d bytes, %s: %w", p.params.Test, p.memory, p.params.Size(), p.ways[i].name, err)
			}
			p.times[i] = append(p.times[i], ns)
		}
	}
	return nil
}

// measureWay measures way i of a point, and returns the time of a message in ns.
func (s *session) measureWay(conn *rte.Conn, set *config.Set, p *point, i int) (float64, error) {
	r := calibrateRun{Params: p.params, Settings: calibrateSettings(p.ways[i].settings)}
	c := s.config
	var err error
	if c.Settings, err = set.WithFrom("--calibrate", r.Settings); err != nil {
		return 0, err
	}
	if err := conn.Send(kindRun, r); err != nil {
		return 0, err
	}
	if err := conn.Receive(kindReady, nil); err != nil {
		return 0, err
	}
	res, err := perf.Run(c, conn, r.Params)
	if errors.Is(s.orInterrupted(err), perf.ErrInterrupted) { // the last run: the other process ends with this one
		return 0, err
	}
	err, broken := endRun(conn, cause(conn, err), false)
	if err = errors.Join(err, broken); err != nil {
		return 0, err
	}
	if res.Test.Pattern == perf.PingPong {
		return res.Last.Percentile, nil
	}
	return res.Last.LatencyTotal, nil
}

// calibrateSettings returns the settings of a run.
func calibrateSettings(own map[string]string) map[string]string {
	s := map[string]string{"tls": "shm"}
	maps.Copy(s, own)
	return s
}

// startPeer starts the other process and connects to it. end waits for its end.
func startPeer(o *options, stderr io.Writer) (conn *rte.Conn, end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	args := []string{"--calibrate", o.calibrate}
	if len(o.cpus) > 1 {
		args = append(args, "-c", strconv.Itoa(o.cpus[1]))
	}
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), calibrateEnv+"=1"), stderr
	in, err := cmd.StdinPipe() // its end is that of the peer
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	end = func() error {
		if conn != nil {
			_ = conn.Close()
		}
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the other process: %w", err)
		}
		return nil
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, nil, errors.Join(errors.New("it has ended"), end())
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err == nil {
		c := o.rte()
		c.Port, c.IPv6 = port, false
		if conn, err = rte.Dial(context.Background(), "127.0.0.1", c); err == nil && conn.Peer().PID != cmd.Process.Pid {
			err = fmt.Errorf("another program, %s, listens at its port", conn.Peer())
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return conn, end, nil
}

// calibratePeer executes the runs of the process that has started this one.
func calibratePeer(o *options, set *config.Set, logger *zap.Logger, stdout io.Writer) error {
	signal.Ignore(os.Interrupt) // it is the other process's to end both
	l, err := rte.ListenLocal(o.rte())
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the other process has ended, or has no more to run
	}()
	fmt.Fprintln(stdout, l.Addr().(*net.TCPAddr).Port)
	conn, err := l.Accept(func(error) {})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for {
		var r calibrateRun
		kind, err := conn.ReceiveAny(map[string]any{kindRun: &r, kindEnd: nil})
		if err != nil || kind == kindEnd {
			return err
		}
		c := perf.Config{Providers: transports.All(), Log: logger}
		if c.Settings, err = set.WithFrom("--calibrate", r.Settings); err == nil {
			err = conn.Send(kindReady, nil)
		}
		if err != nil {
			return sendFailure(conn, err)
		}
		_, err = perf.Run(c, conn, r.Params)
		if _, broken := endRun(conn, cause(conn, err), false); broken != nil {
			return broken
		}
	}
}
