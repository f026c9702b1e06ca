package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/log"
	"github.com/goucx/goucx/uct"
)

// run executes a command line: data goes to stdout, warnings to stderr.
func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	switch {
	case o.help:
		return usage(stdout)
	case o.man:
		_, err := io.WriteString(stdout, describe().Man())
		return err
	case o.completion != "":
		_, err := io.WriteString(stdout, describe().Completion(o.completion))
		return err
	}
	t := newTool(o, transports.All(), stderr)
	err = t.show()
	_, werr := t.out.WriteTo(stdout)
	return errors.Join(err, werr, t.closeLog())
}

// tool is one run of the command.
type tool struct {
	*options
	providers []uct.Component
	out       bytes.Buffer
	stderr    io.Writer
	document  map[string]any // the output of --json
	set       *config.Set    // nil until settings is called
	log       *zap.Logger    // configured by the settings
	closeLog  func() error
}

func newTool(o *options, providers []uct.Component, stderr io.Writer) *tool {
	return &tool{
		options: o, providers: providers, stderr: stderr, document: map[string]any{},
		closeLog: func() error { return nil },
	}
}

// show writes the requested sections to out, up to the first error.
func (t *tool) show() error {
	for _, r := range t.sections {
		if err := r.show(t); err != nil {
			return err
		}
	}
	if !t.json {
		return nil
	}
	return t.encode()
}

func (t *tool) encode() error {
	e := json.NewEncoder(&t.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(t.document)
}

// settings loads the settings once.
func (t *tool) settings() (*config.Set, error) {
	if t.set != nil {
		return t.set, nil
	}
	set, warnings, err := config.Load(config.Options{}, ucp.Tables(t.providers)...)
	if err != nil {
		t.warn(warnings, zapcore.WarnLevel, nil)
		return nil, err
	}
	file := config.LogFile.Get(set)
	logger, closeLog, err := log.New(config.LogLevel.Get(set), file)
	if err != nil {
		return nil, err
	}
	t.set, t.log, t.closeLog = set, logger, closeLog
	to := logger
	if file == "" {
		to = nil
	}
	t.warn(warnings, logger.Core(), to)
	return set, nil
}

// warn writes the warnings whose level is enabled: to a log, or to stderr if the log is nil.
func (t *tool) warn(warnings []config.Warning, enabled zapcore.LevelEnabler, to *zap.Logger) {
	for _, w := range warnings {
		level, name := zapcore.WarnLevel, "warning"
		if w.Info {
			level, name = zapcore.InfoLevel, "note"
		}
		switch {
		case !enabled.Enabled(level):
		case to != nil:
			to.Log(level, w.Text)
		default:
			fmt.Fprintf(t.stderr, "ucx_info: %s: %s\n", name, w)
		}
	}
}

// contextSettings returns the settings, restricted to the transport of -t and the device types of
// -D.
func (t *tool) contextSettings() (*config.Set, error) {
	set, err := t.settings()
	if err == nil && t.transport != "" {
		set, err = set.WithFrom("-t "+t.transport, map[string]string{"tls": t.transport})
	}
	if err != nil || t.types == "" || t.types == "all" {
		return set, err
	}
	none := map[string]string{}
	for _, kind := range []string{"net", "shm", "self"} {
		if kind != t.types {
			none[kind+"_devices"] = ""
		}
	}
	return set.WithFrom("-D "+t.types, none)
}

// line writes a line as a comment, so that the whole output of the tool is valid as ucx.conf.
func (t *tool) line(format string, args ...any) {
	t.out.WriteString(strings.TrimRight("# "+fmt.Sprintf(format, args...), " ") + "\n")
}

// field writes "# name: text", with the name ending at the given column.
func (t *tool) field(column int, name, format string, args ...any) {
	t.line("%*s: %s", column-1, name, fmt.Sprintf(format, args...))
}
