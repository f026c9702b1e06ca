package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// usageError is an invalid command line; the exit code is 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode returns 2 for an invalid command line, 1 for a failed run.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// run is the command: results go to stdout, diagnostics to stderr.
func run(args []string, stdout, stderr io.Writer) (err error) {
	o := newOptions()
	connects := false
	defer func() {
		if err != nil && !connects && o.host != "" {
			o.decline(err)
		}
	}()
	if err := o.parse(args); err != nil {
		return usageError{fmt.Errorf("%w (-h lists the options)", err)}
	}
	if o.help {
		return writeUsage(stdout, newOptions())
	}
	switch {
	case o.completion != "":
		_, err := io.WriteString(stdout, describe().Completion(o.completion))
		return err
	case o.man:
		_, err := io.WriteString(stdout, describe().Man())
		return err
	}
	if o.version {
		v := cmdline.BuildOf(cmdline.Info())
		_, err := fmt.Fprintf(stdout, "ucx_perftest of goucx %s, revision %s, %s %s\n", v.Version, v.ShortRevision(), v.Go, v.Platform)
		return err
	}
	if err := o.checkForm(); err != nil {
		return err
	}
	if o.calibrate != "" {
		connects = true
		return calibrate(o, stdout, stderr)
	}
	plan, err := newPlan(o)
	if err != nil {
		return err
	}
	warnTo := stderr
	if o.quiet {
		warnTo = io.Discard
	}
	for _, text := range plan.ignored() {
		fmt.Fprintf(warnTo, "ucx_perftest: warning: %s\n", text)
	}
	set, logger, closeLog, err := settings(warnTo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	if err := pin(o.cpus); err != nil {
		return err
	}
	s := &session{options: o, plan: plan, stdout: stdout, stderr: stderr}
	s.config = perf.Config{Providers: transports.All(), Settings: set, Log: logger, CPUs: o.cpus, Interval: o.interval}
	devices := transports.SoftConfig(set, logger)
	if o.pcap != "" {
		if len(plan.steps) > 0 && !slices.ContainsFunc(plan.runs(), step.verbs) {
			return usagef("--pcap captures the packets of verbs tests; none is to run")
		}
		packets, perr := newPcap(o.pcap, o.loopback, &devices)
		if perr != nil {
			return perr
		}
		defer func() {
			err = errors.Join(err, packets.close())
			if packets.packets == 0 {
				fmt.Fprintf(warnTo, "ucx_perftest: warning: --pcap %s has no packet: it captures those of verbs tests\n", o.pcap)
			}
		}()
	}
	s.config.Verbs = soft.New(devices)
	withAdapter, err := set.WithFrom("verbs_rate", map[string]string{"soft_adapter": "mlx5"})
	if err != nil {
		return err
	}
	adapter := transports.SoftConfig(withAdapter, logger).Adapter
	s.config.Adapter = func(blueFlame bool) verbs.Provider {
		c, mlx5 := devices, *adapter
		mlx5.ShutUpBF = mlx5.ShutUpBF || !blueFlame
		c.Adapter = &mlx5
		return soft.New(c)
	}
	if o.plot != "" {
		if s.picture, err = newPicture(o, stderr); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.picture.draw()) }()
	}
	if o.gcInterval > 0 {
		ticker, end := time.NewTicker(o.gcInterval), make(chan struct{})
		defer close(end)
		defer ticker.Stop()
		go func() {
			for {
				select {
				case <-ticker.C:
					runtime.GC()
				case <-end:
					return
				}
			}
		}()
	}
	connects = true
	switch {
	case o.loopback:
		return s.loopback()
	case o.host != "":
		return s.client()
	default:
		return s.server()
	}
}

// pin binds this process to the processors of -c.
func pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	// Bind all threads, not only the measuring one: the runtime's other threads would disturb the
	// peer on its processor. A goroutine locked to its thread would be descheduled and woken at
	// each preemption by the runtime.
	runtime.GOMAXPROCS(len(cpus))
	usable, _ := cpu.Affinity() // for the error alone
	if err := cpu.SetProcessAffinity(cpus); err != nil {
		return fmt.Errorf("-c %s: %w; this process may use %s", cpu.FormatList(cpus), err, cpu.FormatList(usable))
	}
	got, err := cpu.Affinity()
	if err != nil {
		return fmt.Errorf("-c %s: %w", cpu.FormatList(cpus), err)
	}
	for _, c := range cpus {
		if !slices.Contains(got, c) {
			return fmt.Errorf("-c %s: there is no processor %d, or this process may not use it; it may use %s", cpu.FormatList(cpus), c, cpu.FormatList(usable))
		}
	}
	return nil
}
