package rc

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
	kind := machine.MsgKind(0)
	for line := range strings.Lines(string(text)) {
		name, bytes, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		kind++
		n := someNote()
		n.msg.Kind = kind
		require.Equal(t, name, kind.String())
		require.Equal(t, bytes, hex.EncodeToString(n.append(nil)), name)
	}
	require.Equal(t, machine.MsgReset, kind)
}
