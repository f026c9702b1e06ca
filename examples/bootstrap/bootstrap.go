// Package bootstrap exchanges start-up information between the processes of a job: each process
// passes some bytes, its worker's address or the key of its memory, and receives those of all
// processes. It does not depend on goucx, which accepts plain bytes from any source. Replace it by
// your launcher's mechanism (PMI, MPI, etcd), or copy it.
//
// The environment identifies the process and the place of the exchange:
//
//	JOB_RANK, JOB_SIZE  its number, from 0, and the number of processes
//	JOB_DIR             an empty directory that all processes can access, or
//	JOB_ADDR            host:port, where the process of rank 0 listens
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// maxContribution is the maximum number of bytes from one process. More is a mistake, or comes from a
// process outside the job.
const maxContribution = 1 << 20

// Job is one process of a job. It is used by one goroutine.
type Job struct {
	// Rank is the number of this process, from 0; Size is the number of processes.
	Rank, Size int

	exchange exchanger
}

// exchanger exchanges bytes between processes.
type exchanger interface {
	allgather(ctx context.Context, mine []byte) ([][]byte, error)
	close() error
}

// Join reads the environment and joins the exchange. ctx bounds the wait for rank 0.
func Join(ctx context.Context) (*Job, error) {
	rank, err := number("JOB_RANK")
	if err != nil {
		return nil, err
	}
	size, err := number("JOB_SIZE")
	if err != nil {
		return nil, err
	}
	if rank >= size {
		return nil, fmt.Errorf("JOB_RANK %d is not below JOB_SIZE %d", rank, size)
	}
	j := &Job{Rank: rank, Size: size}
	switch dir, addr := os.Getenv("JOB_DIR"), os.Getenv("JOB_ADDR"); {
	case dir != "":
		j.exchange = &directory{path: dir, rank: rank, size: size}
	case addr != "":
		j.exchange, err = meetTCP(ctx, addr, rank, size)
	default:
		err = errors.New("neither JOB_DIR nor JOB_ADDR is set")
	}
	if err != nil {
		return nil, fmt.Errorf("join as rank %d of %d: %w", rank, size, err)
	}
	return j, nil
}

// Allgather sends mine to all processes and returns what all processes sent, by rank. All
// processes must call it equally often.
//
// It makes no progress on any worker of this process. So everything that another process needs
// before its own Allgather must be complete already.
func (j *Job) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	if len(mine) > maxContribution {
		return nil, fmt.Errorf("allgather: %d bytes are more than %d", len(mine), maxContribution)
	}
	all, err := j.exchange.allgather(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("allgather as rank %d of %d: %w", j.Rank, j.Size, err)
	}
	return all, nil
}

// Close leaves the exchange. Incomplete Allgather calls of other processes fail.
func (j *Job) Close() error { return j.exchange.close() }

func number(name string) (int, error) {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("environment %s=%q is no number from 0", name, os.Getenv(name))
	}
	return n, nil
}
