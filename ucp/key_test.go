package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp/internal/keycodec"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

func TestKeyString(t *testing.T) {
	v := keycodec.View{Base: 0x7f0011223344, Len: 4096, Owner: wireup.ContextID{Process: uct.UUID{0xb0, 1, 2, 3}, Context: 3}}
	b, err := v.Append(nil)
	require.NoError(t, err)
	assert.Equal(t, "key to 4096 bytes at 0x7f0011223344 of context 3 of process b0010203", Key(b).String())
}
