package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
)

// fakeMode makes the test binary stand in for both tools: "ok", or a fault.
const fakeMode = "BENCHUCX_FAKE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		if err := fake(mode, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fake is a server that takes one connection or, with a host, a client that
// makes one and prints how much it was told; with -l it prints at once.
func fake(mode string, args []string) error {
	if mode == "client fails" && slices.Contains(args, "-f") {
		return errors.New("no such test")
	}
	if !slices.Contains(args, "-l") {
		port := args[slices.Index(args, "-p")+1]
		if !slices.Contains(args, host) {
			return fakeServer(mode, port)
		}
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return err
		}
		defer c.Close()
	}
	if mode == "garbage" {
		fmt.Println("iterations,overall_lat,overall_mr\n1,x,")
		return nil
	}
	fmt.Printf("+---+\n| box |\niterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"+
		"1000,0.1,0.2,0.3,1,1,3,%d000000\n", len(args))
	return nil
}

func fakeServer(mode, port string) error {
	switch mode {
	case "server ends":
		return errors.New("no memory")
	case "server deaf":
		select {}
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if mode == "server stays" {
		select {}
	}
	if mode == "server fails" {
		return errors.New("peer vanished")
	}
	return c.Close()
}
