package log

import (
	"fmt"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/ucs"
)

// TraceLevel is below zap's debug level.
const TraceLevel = zapcore.DebugLevel - 1

// DefaultLevel is the default level of UCX.
const DefaultLevel = "warn"

// levels lists the level names, least verbose first. The seven trace levels of UCX map to
// TraceLevel. Its level diag, between warn and info, maps to info.
var levels = []struct {
	name  string
	level zapcore.Level
}{
	{"fatal", zapcore.FatalLevel},
	{"error", zapcore.ErrorLevel},
	{"warn", zapcore.WarnLevel},
	{"diag", zapcore.InfoLevel},
	{"info", zapcore.InfoLevel},
	{"debug", zapcore.DebugLevel},
	{"trace", TraceLevel},
	{"req", TraceLevel},
	{"data", TraceLevel},
	{"async", TraceLevel},
	{"func", TraceLevel},
	{"poll", TraceLevel},
	{"print", TraceLevel},
}

// Levels returns the names that ParseLevel accepts, least verbose first.
func Levels() []string {
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return names
}

// ParseLevel parses a level name of UCX_LOG_LEVEL, regardless of case. The empty string
// means DefaultLevel.
//
// Errors: ucs.ErrInvalid, with a list of the levels.
func ParseLevel(name string) (zapcore.Level, error) {
	if name == "" {
		name = DefaultLevel
	}
	for _, l := range levels {
		if strings.EqualFold(l.name, name) {
			return l.level, nil
		}
	}
	return 0, fmt.Errorf("log level %q: %w: use one of %s", name, ucs.ErrInvalid, strings.Join(Levels(), ", "))
}
