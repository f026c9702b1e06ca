package main

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs/log"
)

// settings reads configuration files and the UCX_* environment. It returns the settings and the
// log that they configure.
func settings(stderr io.Writer) (*config.Set, *zap.Logger, func() error, error) {
	set, warnings, err := config.Load(config.Options{}, ucp.Tables(transports.All())...)
	if err != nil {
		warn(stderr, warnings, zapcore.WarnLevel, nil)
		return nil, nil, nil, err
	}
	file := config.LogFile.Get(set)
	logger, closeLog, err := log.New(config.LogLevel.Get(set), file)
	if err != nil {
		return nil, nil, nil, err
	}
	to := logger
	if file == "" {
		to = nil
	}
	warn(stderr, warnings, logger.Core(), to)
	return set, logger, closeLog, nil
}

// warn writes the warnings whose level is enabled: to a log, or to stderr if the log is nil.
func warn(stderr io.Writer, warnings []config.Warning, enabled zapcore.LevelEnabler, to *zap.Logger) {
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
			fmt.Fprintf(stderr, "ucx_perftest: %s: %s\n", name, w)
		}
	}
}
