package perf

import (
	"time"
)

// Report is one row: the figures since the last row (Moment) and since the start (Total).
type Report struct {
	// Final marks the last row of a run.
	Final bool
	// Thread is the row's thread; the last row of several threads covers all.
	Thread int
	// Sum marks the last row of several threads. Its rates are those of all messages from the first
	// thread's start to the last one's end, its latency is the mean of the threads' latencies. It has
	// no Percentile and no Moment figures.
	Sum        bool
	Iterations int64
	// Percentile, LatencyMoment and LatencyTotal are in nanoseconds; for a ping-pong they are half
	// of a round trip.
	Percentile                    float64
	LatencyMoment, LatencyTotal   float64
	BytesMoment, BytesTotal       float64 // bytes per second
	MessagesMoment, MessagesTotal float64 // messages per second
	Elapsed                       time.Duration
}

// Quantiles are quantiles of all stamps of a run, in nanoseconds, from an HDR histogram.
type Quantiles struct {
	P50, P99, P999, Max float64
	// Samples is the number of stamps; each represents StampEvery messages.
	Samples int64
}

// Result is the outcome of a run on the measuring side.
type Result struct {
	// Params are the effective parameters of the run: with the actual warm-up, and without options
	// that the test does not use.
	Params Params
	Test   Test
	// Transports are the transports and devices that carried the messages at the end of the run.
	Transports string
	// Last is the final row.
	Last Report
	Quantiles
	// StampEvery is the number of messages per stamp.
	StampEvery int
	// Window is the window that was used.
	Window int
	// PerMessage are what the device of verbs_rate has counted, by message. Locks of completion
	// queues depend on how often a thread polls, and the others only on the parameters. Resources are
	// numbers of objects and registers; without Config.Adapter those of registers are 0.
	PerMessage, Resources []Figure
}

// Figure is a named number.
type Figure struct {
	Name  string
	Value float64
}

// moment is a point in a run from which rates are computed.
type moment struct {
	at         time.Duration // since the start
	iterations int64
}

// row computes a row.
//
// Source: ucx_perf_calc_result of UCX 1.13's libperf.c, with its factor of 2 for ping-pongs in
// every column.
func row(last, now moment, bytesEach int64, factor float64) Report {
	r := Report{Iterations: now.iterations, Elapsed: now.at}
	n, d := float64(now.iterations-last.iterations), (now.at - last.at).Seconds()
	if n > 0 { // a run may end right after a row; without messages there is no latency
		r.LatencyMoment = d / n / factor * 1e9
	}
	r.MessagesMoment = n / d * factor
	r.BytesMoment = r.MessagesMoment * float64(bytesEach)
	n, d = float64(now.iterations), now.at.Seconds()
	r.LatencyTotal = d / n / factor * 1e9
	r.MessagesTotal = n / d * factor
	r.BytesTotal = r.MessagesTotal * float64(bytesEach)
	return r
}
