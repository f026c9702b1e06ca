package log

import (
	"fmt"
	"strings"

	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/ucs"
)

// TraceLevel lies below zap's debug.
const TraceLevel = zapcore.DebugLevel - 1

// DefaultLevel is UCX's.
const DefaultLevel = "warn"

// levels, from the quietest. UCX tells seven kinds of trace apart, which are
// one here; its diag, between warn and info, shows what info does.
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

// Levels lists the names that ParseLevel takes, from the quietest.
func Levels() []string {
	names := make([]string, len(levels))
	for i, l := range levels {
		names[i] = l.name
	}
	return names
}

// ParseLevel reads a level as UCX_LOG_LEVEL gives it, in any case; "" is
// DefaultLevel.
//
// Errors: ucs.ErrInvalid, listing the levels.
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

// encodeLevel writes the level's name; zap knows none for TraceLevel.
func encodeLevel(l zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
	if l == TraceLevel {
		enc.AppendString("TRACE")
		return
	}
	zapcore.CapitalLevelEncoder(l, enc)
}
