#include "textflag.h"

// func Cycles() uint64
TEXT ·Cycles(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	PAUSE
	RET

// func prefetch(p uintptr, lines int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
loop:
	DECQ CX
	JLT  done
	PREFETCHT0 (AX)
	ADDQ $64, AX
	JMP  loop
done:
	RET

// func demote(p uintptr, lines int)
TEXT ·demote(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
loop:
	DECQ CX
	JLT  done
	BYTE $0x0F; BYTE $0x1C; BYTE $0x00 // CLDEMOTE (AX), which the assembler does not have
	ADDQ $64, AX
	JMP  loop
done:
	RET
