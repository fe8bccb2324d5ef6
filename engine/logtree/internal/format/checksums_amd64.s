#include "textflag.h"

// END adds what is left of a value, from P on, to its sum: words of eight bytes, then four, two and one.
#define END(P, LEN, SUM, words, four, two, one, done) \
	ADDQ   SI, P;        \
	MOVQ   LEN(DI), R12; \
	SUBQ   SI, R12;      \
words:                  \
	CMPQ   R12, $8;      \
	JLT    four;         \
	CRC32Q (P), SUM;     \
	ADDQ   $8, P;        \
	SUBQ   $8, R12;      \
	JMP    words;        \
four:                   \
	TESTQ  $4, R12;      \
	JEQ    two;          \
	CRC32L (P), SUM;     \
	ADDQ   $4, P;        \
two:                    \
	TESTQ  $2, R12;      \
	JEQ    one;          \
	CRC32W (P), SUM;     \
	ADDQ   $2, P;        \
one:                    \
	TESTQ  $1, R12;      \
	JEQ    done;         \
	CRC32B (P), SUM;     \
done:                   \
	NOTL   SUM

// func checksums(of *[4][]byte, all int, sums *[4]uint32)
TEXT ·checksums(SB), NOSPLIT, $0-24
	MOVQ of+0(FP), DI
	MOVQ all+8(FP), SI
	MOVQ 0(DI), R8
	MOVQ 24(DI), R9
	MOVQ 48(DI), R10
	MOVQ 72(DI), R11
	MOVL $-1, AX
	MOVL AX, BX
	MOVL AX, CX
	MOVL AX, DX

	// What all four have, a word of each at a time.
	XORL R13, R13
	JMP  test

next:
	CRC32Q (R8)(R13*1), AX
	CRC32Q (R9)(R13*1), BX
	CRC32Q (R10)(R13*1), CX
	CRC32Q (R11)(R13*1), DX
	ADDQ   $8, R13

test:
	CMPQ R13, SI
	JCS  next

	END(R8, 8, AX, words0, four0, two0, one0, done0)
	END(R9, 32, BX, words1, four1, two1, one1, done1)
	END(R10, 56, CX, words2, four2, two2, one2, done2)
	END(R11, 80, DX, words3, four3, two3, one3, done3)

	MOVQ sums+16(FP), DI
	MOVL AX, 0(DI)
	MOVL BX, 4(DI)
	MOVL CX, 8(DI)
	MOVL DX, 12(DI)
	RET
