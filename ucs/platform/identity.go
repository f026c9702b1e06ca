package platform

import (
	"crypto/rand"
	"crypto/sha256"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Identity says which host and process this is. What the system does not tell
// is zero.
type Identity struct {
	BootID       string // changes with every start of the kernel
	Hostname     string // of the UTS namespace: containers have their own
	PIDNamespace uint64 // inode; equal numbers: process ids mean the same
	NetNamespace uint64 // inode; equal numbers: abstract sockets meet
	UID          int
	PID          int
	StartTime    uint64 // of this process, in clock ticks since the kernel started
}

// Self reads the identity of this process.
func Self() Identity {
	id := Identity{
		BootID: readLine("/proc/sys/kernel/random/boot_id"),
		UID:    os.Getuid(), PID: os.Getpid(),
		PIDNamespace: inode("/proc/self/ns/pid"), NetNamespace: NetNamespace(),
	}
	id.Hostname, _ = os.Hostname() // absent: empty
	id.StartTime, _ = StartTime(id.PID)
	return id
}

// NetNamespace is Identity.NetNamespace alone.
func NetNamespace() uint64 { return inode("/proc/self/ns/net") }

// StartTime tells a process from a later one with the same id; false if there
// is none, or the system does not tell.
func StartTime(pid int) (ticks uint64, ok bool) {
	return parseStartTime(readLine("/proc/" + strconv.Itoa(pid) + "/stat"))
}

// parseStartTime takes field 22 of /proc/PID/stat. The second field is the
// command's name in parentheses, which may hold blanks and parentheses itself.
func parseStartTime(stat string) (uint64, bool) {
	const field, firstAfterName = 22, 3
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field-firstAfterName {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[field-firstAfterName], 10, 64)
	return n, err == nil
}

// HostID is the same in all processes of a running system, containers included,
// and differs between systems. It is a digest of the boot id; where that is
// hidden, of machine id and host name, which containers do not share.
//
// Equal ids make shared memory worth a try; they do not prove that it works.
func HostID() [16]byte { return hostID() }

var hostID = sync.OnceValue(func() [16]byte {
	return hostDigest(Self().BootID, readLine("/etc/machine-id"), Self().Hostname)
})

func hostDigest(boot, machine, name string) (id [16]byte) {
	text := "boot " + boot
	if boot == "" {
		text = "machine " + machine + " " + name
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// ProcessID is random, made anew by every process, one that replaced another by
// exec included.
func ProcessID() [16]byte { return processID() }

var processID = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails: it ends the process instead
	return id
})

func readLine(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
