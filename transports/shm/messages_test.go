package shm

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/wireup/machine"
)

// TestMessageBytes holds the bytes of each kind of connection message.
func TestMessageBytes(t *testing.T) {
	text, err := os.ReadFile("testdata/messages.txt")
	require.NoError(t, err)
	kind := msgKind(0)
	for line := range strings.Lines(string(text)) {
		name, bytes, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		kind++
		h := goldenHello
		h.kind = kind
		if m := machineKinds[kind]; m != machine.MsgKind(0) {
			require.Equal(t, name, m.String())
		}
		require.Equal(t, bytes, hex.EncodeToString(h.append(nil)), name)
	}
	require.Equal(t, numKinds-1, kind)
}
