package shm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/protocol"
)

// A device address holds what two workers must share to reach each other by shm:
//
//	0 version u8 | 1 features u8 | 2 uid u32
//	6 boot id [16] | 22 place: network namespace inode u64, 0; or directory device u64, inode u64
//	38 digest u64 of the worker's network addresses at open; 0: unknown
//	46 CRC-32 (IEEE) of the bytes before
//
// Reachable addresses may differ in the digest only. The CRC detects damage to it.
const deviceLen = 50

// socketsInDir is a required feature bit of a device address: the sockets are files in a directory.
const socketsInDir protocol.Features = 1 << 0

var deviceFormat = protocol.Format{Name: "device address of shm", Version: 3, Features: [8]string{0: "sockets in UCX_SHM_SOCKET_DIR"}}

func appendDeviceAddress(b []byte, dir string) []byte {
	path, features := "/proc/self/ns/net", protocol.Features(0)
	if dir != "" {
		path, features = dir, socketsInDir
	}
	var st unix.Stat_t
	_ = unix.Stat(path, &st) // on error the zeroes equal those of other workers that cannot read it
	b = append(b, deviceFormat.Version, byte(features))
	b = binary.LittleEndian.AppendUint32(b, uint32(os.Geteuid()))
	// The boot id is zero if the system does not show it. It is not cached: a read may fail for
	// lack of a descriptor.
	var bootID [16]byte
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		id, _ := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
		copy(bootID[:], id)
	}
	b = append(b, bootID[:]...)
	if dir == "" {
		b = binary.LittleEndian.AppendUint64(b, st.Ino)
		b = binary.LittleEndian.AppendUint64(b, 0)
	} else {
		b = binary.LittleEndian.AppendUint64(b, uint64(st.Dev)) //nolint:unconvert // 32 bits on other systems
		b = binary.LittleEndian.AppendUint64(b, st.Ino)
	}
	return appendCRC(binary.LittleEndian.AppendUint64(b, platform.NetAddresses()))
}

// appendCRC appends the CRC to b, which ends with the other bytes of a device address.
func appendCRC(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[len(b)-deviceLen+4:]))
}

// compareDevice reports whether a worker with device address a can reach a peer with
// device address b. If not, it returns the reason.
func compareDevice(a, b []byte) (bool, string) {
	if len(b) > 1 {
		if err := deviceFormat.Check(b[0], protocol.Features(b[1])); err != nil {
			return false, err.Error()
		}
	}
	inDir := func(addr []byte) bool { return protocol.Features(addr[1])&socketsInDir != 0 }
	switch {
	case len(b) != deviceLen:
		return false, fmt.Sprintf("damaged address: device part of %d bytes, want %d", len(b), deviceLen)
	case !bytes.Equal(a[6:22], b[6:22]):
		return false, "peer is on another host (its boot id differs)"
	case !bytes.Equal(a[2:6], b[2:6]):
		return false, fmt.Sprintf("peer belongs to user %d, not %d", binary.LittleEndian.Uint32(b[2:]), os.Geteuid())
	case inDir(a) != inDir(b):
		return false, "one side uses UCX_SHM_SOCKET_DIR, the other does not"
	case !bytes.Equal(a[22:38], b[22:38]) && !inDir(a):
		return false, "peer is in another network namespace; give both UCX_SHM_SOCKET_DIR in a directory that they share"
	case !bytes.Equal(a[22:38], b[22:38]):
		return false, "peer's UCX_SHM_SOCKET_DIR is another directory"
	case crc32.ChecksumIEEE(b[:46]) != binary.LittleEndian.Uint32(b[46:]):
		return false, "damaged address: the checksum of its device part is wrong"
	}
	return true, ""
}

// isUnique reports whether device address a identifies its host and place. It does not
// if the system shows no boot id, or no namespace or directory.
func isUnique(a []byte) bool {
	return !bytes.Equal(a[6:22], make([]byte, 16)) && !bytes.Equal(a[22:38], make([]byte, 16))
}

// sameNamespace reports whether device addresses a and b are of the same network
// namespace. The caller has checked that Reachable accepts b. Clones of a running virtual
// machine share boot id and namespace numbers, but their network addresses differ.
func sameNamespace(a, b []byte) bool {
	return isUnique(a) && bytes.Equal(a[38:46], b[38:46]) && !bytes.Equal(a[38:46], make([]byte, 8))
}
