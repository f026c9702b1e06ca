package log

import (
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New creates a logger from the settings LOG_LEVEL (see ParseLevel) and LOG_FILE. LOG_FILE
// is "" or "stderr", "stdout", or a path that Expand expands. The file is created if it
// does not exist, and appended to. The returned function closes the file. It is
// idempotent, and must be the last use of the logger.
//
// Errors: ucs.ErrInvalid for an unknown level; otherwise the error of opening the file.
func New(level, file string) (*zap.Logger, func() error, error) {
	lowest, err := ParseLevel(level)
	if err != nil {
		return nil, nil, err
	}
	out, closeOut, err := open(file)
	if err != nil {
		return nil, nil, err
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.EncodeLevel = func(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
		if l == TraceLevel { // zap has no name for it
			enc.AppendString("TRACE")
			return
		}
		zapcore.CapitalLevelEncoder(l, enc)
	}
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(out), lowest)
	return zap.New(core), sync.OnceValue(closeOut), nil
}

func open(file string) (*os.File, func() error, error) {
	noClose := func() error { return nil } // stdout and stderr are not closed
	switch file {
	case "", "stderr":
		return os.Stderr, noClose, nil
	case "stdout":
		return os.Stdout, noClose, nil
	}
	name := Expand(file)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("log file: %w", err)
	}
	return f, f.Close, nil
}
