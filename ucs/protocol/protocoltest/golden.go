// Package protocoltest checks that a format keeps its golden files: the bytes that each version of
// goucx wrote.
//
// Each package with a format of package protocol calls [Run] in a test, with its files in
// testdata/golden. Start reading at [Run].
package protocoltest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
)

var update = flag.Bool("update-golden", false, "write the golden files that do not exist yet; existing ones never change")

// Golden is a value of a format and its golden files.
type Golden struct {
	Format *protocol.Format
	// File is the name of the files: testdata/golden/FILE-vVERSION.hex.
	File string
	// Version and Features are the offsets of the two bytes.
	Version, Features int
	// Bytes is the value, encoded by this version.
	Bytes []byte
	// Decode decodes bytes. The result is compared by [require.Equal]. It contains no optional
	// feature bits.
	Decode func([]byte) (any, error)
	// Want is the result of Decode for Bytes.
	Want any
	// Seal repairs the checksum; nil: there is none.
	Seal func([]byte) []byte
}

// Run checks a format against its golden files:
//
//   - The file of this version has the bytes that this program writes, and this program reads it.
//   - The file of another version is read, or refused by an error that names both versions.
//   - What a later version writes is refused likewise, whatever its length. So is each required
//     feature bit that this program does not know. Each optional bit that it does not know is ignored.
//
// With -update-golden, Run writes the file of this version if it does not exist.
func Run(t *testing.T, g Golden) {
	t.Helper()
	if g.Seal == nil {
		g.Seal = func(b []byte) []byte { return b }
	}
	own := g.path(g.Format.Version)
	if _, err := os.Stat(own); *update && errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, os.MkdirAll(filepath.Dir(own), 0o755))
		require.NoError(t, os.WriteFile(own, g.text(), 0o644))
	}
	files, err := filepath.Glob(filepath.Join("testdata", "golden", g.File+"-v*.hex"))
	require.NoError(t, err)
	require.Contains(t, files, own, "each version has its golden file; -update-golden writes it")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".hex"), g.File+"-v")
			version, err := strconv.ParseUint(name, 10, 8)
			require.NoError(t, err)
			b := readHex(t, file)
			got, err := g.Decode(bytes.Clone(b))
			if uint8(version) == g.Format.Version {
				require.Equal(t, hex.EncodeToString(b), hex.EncodeToString(g.Bytes), "this version has written other bytes: change the version, or restore the format")
				require.NoError(t, err)
				require.Equal(t, g.Want, got)
			} else if err != nil {
				g.requireVersions(t, err, uint8(version))
			}
		})
	}
	later := g.Format.Version + 1
	b := g.with(g.Version, later)
	for name, b := range map[string][]byte{
		"later version": b, "later, longer": append(b, make([]byte, 16)...), "later, shorter": b[:max(len(b)/2, g.Version+1, g.Features+1)],
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.Decode(g.Seal(bytes.Clone(b)))
			g.requireVersions(t, err, later)
		})
	}
	for i, name := range g.Format.Features {
		if bit := protocol.Features(1 << i); name == "" {
			t.Run(fmt.Sprintf("feature %d", i), func(t *testing.T) {
				got, err := g.Decode(g.Seal(g.with(g.Features, g.Bytes[g.Features]|byte(bit))))
				if bit&protocol.Required == 0 {
					require.NoError(t, err)
					require.Equal(t, g.Want, got)
					return
				}
				require.ErrorContains(t, err, fmt.Sprintf("requires feature %d,", i))
				g.requireVersions(t, err, g.Format.Version)
			})
		}
	}
}

// requireVersions requires that err refuses the peer's version, and names both.
func (g *Golden) requireVersions(t *testing.T, err error, peer uint8) {
	t.Helper()
	require.ErrorIs(t, err, ucs.ErrUnsupported)
	require.ErrorContains(t, err, g.Format.Name)
	for _, v := range []uint8{peer, g.Format.Version} {
		require.ErrorContains(t, err, fmt.Sprintf("version %d", v))
	}
}

func (g *Golden) path(version uint8) string {
	return filepath.Join("testdata", "golden", fmt.Sprintf("%s-v%d.hex", g.File, version))
}

// with returns a copy of the bytes with another one at offset at.
func (g *Golden) with(at int, v byte) []byte {
	b := bytes.Clone(g.Bytes)
	b[at] = v
	return b
}

// text returns the content of a golden file: lines of 16 bytes.
func (g *Golden) text() []byte {
	b := fmt.Appendf(nil, "# %s of version %d. This file never changes.\n", g.Format.Name, g.Format.Version)
	for rest := g.Bytes; len(rest) > 0; {
		n := min(len(rest), 16)
		b = fmt.Appendf(b, "%x\n", rest[:n])
		rest = rest[n:]
	}
	return b
}

// readHex reads hexadecimal digits from a file. Lines that begin with # are comments.
func readHex(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			digits.WriteString(strings.Join(strings.Fields(line), ""))
		}
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err)
	return b
}
