package log

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/goucx/goucx/ucs"
)

func TestParseLevel(t *testing.T) {
	for name, want := range map[string]zapcore.Level{
		"fatal": zapcore.FatalLevel, "error": zapcore.ErrorLevel, "warn": zapcore.WarnLevel, "": zapcore.WarnLevel,
		"diag": zapcore.InfoLevel, "INFO": zapcore.InfoLevel, "Debug": zapcore.DebugLevel, "trace": TraceLevel,
		"req": TraceLevel, "data": TraceLevel, "async": TraceLevel, "func": TraceLevel, "poll": TraceLevel,
	} {
		got, err := ParseLevel(name)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	_, err := ParseLevel("loud")
	require.ErrorIs(t, err, ucs.ErrInvalid)
	assert.ErrorContains(t, err, `"loud"`)
	for _, name := range Levels() {
		assert.ErrorContains(t, err, name)
	}
}

func TestLevelsFilter(t *testing.T) {
	for level, want := range map[string]string{
		"fatal": "", "error": "ERROR", "warn": "ERROR WARN", "info": "ERROR WARN INFO",
		"debug": "ERROR WARN INFO DEBUG", "trace": "ERROR WARN INFO DEBUG TRACE",
	} {
		file := filepath.Join(t.TempDir(), "log")
		l, closeLog, err := New(level, file)
		require.NoError(t, err)
		l.Error("said", zap.Int("n", 7))
		l.Warn("said")
		l.Info("said")
		l.Debug("said")
		l.Log(TraceLevel, "said")
		require.NoError(t, closeLog())
		require.NoError(t, closeLog(), "idempotent")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var got []string
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			require.GreaterOrEqual(t, len(fields), 3, line)
			got = append(got, fields[1])
			assert.Equal(t, "said", fields[2])
		}
		assert.Equal(t, want, strings.Join(got, " "), level)
		if level != "fatal" {
			assert.Contains(t, string(text), `{"n": 7}`)
		}
	}
}

func TestNewAppends(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for range 2 {
		l, closeLog, err := New("warn", file)
		require.NoError(t, err)
		l.Warn("once")
		require.NoError(t, closeLog())
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(text), "once"))
}

func TestNewErrors(t *testing.T) {
	_, _, err := New("loud", "")
	assert.ErrorIs(t, err, ucs.ErrInvalid)
	dir := t.TempDir()
	_, _, err = New("warn", filepath.Join(dir, "absent", "log"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = New("warn", dir)
	assert.Error(t, err)
}

func TestStandardStreams(t *testing.T) {
	for name, stream := range map[string]**os.File{"": &os.Stderr, "stderr": &os.Stderr, "stdout": &os.Stdout} {
		t.Run("to "+name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			old := *stream
			*stream = w
			l, closeLog, err := New("", name)
			*stream = old
			require.NoError(t, err)
			l.Warn("heard")
			require.NoError(t, closeLog())
			l.Warn("still open")
			require.NoError(t, w.Close())
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			assert.Contains(t, string(text), "heard")
			assert.Contains(t, string(text), "still open")
		})
	}
}

func TestExpand(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	host, err := os.Hostname()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"a.log": "a.log", "a.%p": "a." + pid, "%h-%p.log": host + "-" + pid + ".log", "file:/x/%p": "/x/" + pid,
		"%": "%", "a%": "a%", "%z": "%z", "%%p": "%" + pid, "100%.log": "100%.log", "": "",
		"%e": filepath.Base(os.Args[0]),
	} {
		assert.Equal(t, want, Expand(name), name)
	}
	assert.NotContains(t, Expand("%u%t"), "%")
}
