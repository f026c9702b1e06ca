package log

import (
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes a logger of the settings LOG_LEVEL (see ParseLevel) and LOG_FILE:
// "" or "stderr", "stdout", or the path of a file, which is made if absent,
// appended to, and whose name Expand completes. The function returned closes
// the file; call it last. It is idempotent.
//
// Errors: ucs.ErrInvalid for an unknown level; else the file's.
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
	enc.EncodeLevel = encodeLevel
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(out), lowest)
	return zap.New(core), sync.OnceValue(closeOut), nil
}

func open(file string) (*os.File, func() error, error) {
	keep := func() error { return nil } // not ours to close
	switch file {
	case "", "stderr":
		return os.Stderr, keep, nil
	case "stdout":
		return os.Stdout, keep, nil
	}
	name := Expand(file)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("log file: %w", err)
	}
	return f, f.Close, nil
}
