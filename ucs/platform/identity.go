package platform

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Identity identifies the host and this process. A value that the system does not report is
// zero.
type Identity struct {
	BootID       string // changes with every boot
	Hostname     string // of the UTS namespace; a container has its own
	PIDNamespace uint64 // inode; process IDs are comparable if it is equal
	NetNamespace uint64 // inode; abstract sockets are shared if it is equal
	UID          int
	PID          int
	StartTime    uint64 // of this process, in clock ticks since boot
}

// Self returns the identity of this process.
func Self() Identity {
	id := Identity{
		BootID: readLine("/proc/sys/kernel/random/boot_id"),
		UID:    os.Getuid(), PID: os.Getpid(),
		PIDNamespace: inode("/proc/self/ns/pid"), NetNamespace: NetNamespace(),
	}
	id.Hostname, _ = os.Hostname() // empty on error
	id.StartTime, _ = StartTime(id.PID)
	return id
}

// NetNamespace returns only Identity.NetNamespace.
func NetNamespace() uint64 { return inode("/proc/self/ns/net") }

// StartTime returns the start time of a process. It distinguishes the process from a later
// one with the same ID. It returns false if there is no such process, or no /proc.
func StartTime(pid int) (ticks uint64, ok bool) {
	return parseStartTime(readLine("/proc/" + strconv.Itoa(pid) + "/stat"))
}

// Stopped reports whether every thread of process pid is stopped by a signal or a debugger, or has ended. So none
// of them is inside of a system call that changes memory. It is false where that cannot be found out.
func Stopped(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && inode("/proc/self/ns/pid") != 0
	}
	for _, t := range threads {
		stat := readLine(dir + "/" + t.Name() + "/stat") // "" if the thread has ended meanwhile
		state := strings.TrimSpace(stat[strings.LastIndexByte(stat, ')')+1:])
		if state != "" && strings.IndexByte("TtZX", state[0]) < 0 {
			return false
		}
	}
	return true
}

// parseStartTime returns field 22 of /proc/PID/stat. The second field is the command name
// in parentheses, which may itself contain blanks and parentheses.
func parseStartTime(stat string) (uint64, bool) {
	const field, firstAfterName = 22, 3
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field-firstAfterName {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[field-firstAfterName], 10, 64)
	return n, err == nil
}

// HostID returns an ID that is the same in all processes of a running system, including
// containers, and differs between systems. It is a digest of the boot ID. If that is not
// readable, it is a digest of machine ID and host name, which containers do not share.
//
// Equal IDs suggest that shared memory works; they do not prove it.
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

// ProcessID returns a random ID of this process. It changes when the process calls exec.
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
