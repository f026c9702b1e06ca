package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteConfReadsBack(t *testing.T) {
	s, _ := load(t, Options{Env: []string{
		"UCX_TLS=^ud,rc[0-12]", "UCX_SEG_SIZE=4096", "UCX_IB_TX_QUEUE_LEN=4096", "UCX_LOG_FILE=/tmp/a b;c#d=e",
	}})
	for _, full := range []bool{false, true} {
		var b bytes.Buffer
		require.NoError(t, s.WriteConf(&b, full))
		again, warnings := load(t, Options{Dirs: []string{write(t, "ucx.conf", b.String())}})
		assert.Empty(t, warnings)
		assert.Equal(t, testTLS.Get(s), testTLS.Get(again))
		assert.Equal(t, testSeg.Get(s), testSeg.Get(again))
		assert.Equal(t, testQueue.Get(s), testQueue.Get(again))
		assert.Equal(t, testQueueUD.Get(s), testQueueUD.Get(again))
		assert.Equal(t, LogFile.Get(s), LogFile.Get(again))
	}
}

func TestWriteConf(t *testing.T) {
	s, _ := load(t, Options{Env: []string{"UCX_RC_TX_QUEUE_LEN=7"}})
	var short, full bytes.Buffer
	require.NoError(t, s.WriteConf(&short, false))
	assert.Equal(t, "UCX_STRICT=n\nUCX_LOG_LEVEL=WARN\nUCX_LOG_FILE=\nUCX_WARN_UNUSED_ENV_VARS=y\nUCX_TLS=all\n"+
		"UCX_SEG_SIZE=8K\nUCX_SHM_RING_CELLS=32\nUCX_RC_VERBS_TX_QUEUE_LEN=7\nUCX_UD_TX_QUEUE_LEN=128\n", short.String())

	require.NoError(t, s.WriteConf(&full, true))
	assert.Contains(t, full.String(), "#\n# test settings\n#\n")
	assert.Contains(t, full.String(), strings.Join([]string{
		"# Send queue depth.",
		"#",
		"# syntax:    a number from 1 to inf",
		"# default:   256",
		"# inherits:  UCX_RC_TX_QUEUE_LEN, UCX_IB_TX_QUEUE_LEN",
		"# origin:    environment UCX_RC_TX_QUEUE_LEN",
		"#",
		"UCX_RC_VERBS_TX_QUEUE_LEN=7",
		"",
	}, "\n"))
	assert.Contains(t, full.String(), "# default:   32 cells\n")
}

func TestMarkdown(t *testing.T) {
	var b bytes.Buffer
	odd := New("ODD", "", String(), "", "With a | bar\nand a line.")
	require.NoError(t, Markdown(&b, testTable, Table{"odd", []Setting{odd}}))
	text := b.String()
	assert.True(t, strings.HasPrefix(text, "## general\n\n| variable | default | allowed | meaning |\n|---|---|---|---|\n"+
		"| `UCX_STRICT` | `n` | y or n | Refuse settings"), text)
	assert.Contains(t, text, "\n\n## test\n\n")
	assert.Contains(t, text, "| `UCX_SHM_RING_CELLS` | `32 cells` | a number from 2 to 65536 | Cells of a ring. |\n")
	assert.Contains(t, text, "Send queue depth. Inherits UCX_RC_TX_QUEUE_LEN, UCX_IB_TX_QUEUE_LEN. |\n")
	assert.Contains(t, text, `| (empty) | text of one line | With a \| bar and a line. |`)

	assert.Error(t, Markdown(&b, testTable, Table{"x", []Setting{New("TLS", "", String(), "", "")}}))
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestRenderReportsWriteErrors(t *testing.T) {
	s, _ := load(t, Options{})
	assert.ErrorIs(t, s.WriteConf(brokenWriter{}, true), errBroken)
	assert.ErrorIs(t, Markdown(brokenWriter{}, testTable), errBroken)
}
