package perf

import (
	"time"
)

// Report is one row: what was measured since the last row (Moment) and since
// the start (Total).
type Report struct {
	// Final marks the last row of a run.
	Final bool
	// Thread that the row is of; the last row of several threads is of all.
	Thread int
	// Sum marks the last row of several threads: the rates are sums, the latency is
	// the mean of theirs, and there are no Percentile and no figures of a Moment.
	Sum        bool
	Iterations int64
	// Percentile, LatencyMoment and LatencyTotal are in nanoseconds; for a
	// ping-pong half of a round trip.
	Percentile                    float64
	LatencyMoment, LatencyTotal   float64
	BytesMoment, BytesTotal       float64 // bytes per second
	MessagesMoment, MessagesTotal float64 // messages per second
	Elapsed                       time.Duration
}

// Quantiles are of all stamps of a run, in nanoseconds, from an HDR histogram.
type Quantiles struct {
	P50, P99, P999, Max float64
	// Samples is the number of stamps; each stands for StampEvery messages.
	Samples int64
}

// Result is the outcome of a run on the side that measured it.
type Result struct {
	// Params of the run as it was carried out: no warm-up that was not done, no
	// option that the test does not use.
	Params Params
	Test   Test
	// Last is the final row.
	Last Report
	Quantiles
	// StampEvery is the number of messages from stamp to stamp.
	StampEvery int
	// Window that was used.
	Window int
}

// moment is a point in a run from which rates are counted.
type moment struct {
	at         time.Duration // since the start
	iterations int64
}

// row does the arithmetic of a row.
//
// Source: ucx_perf_calc_result of UCX 1.13's libperf.c, with its factor of 2
// for ping-pongs in every column.
func row(last, now moment, bytesEach int64, factor float64) Report {
	r := Report{Iterations: now.iterations, Elapsed: now.at}
	n, d := float64(now.iterations-last.iterations), (now.at - last.at).Seconds()
	if n > 0 { // a run may end right after a row: no messages have no latency
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
