package clock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Move lets the clock of this process go wrong from now on, for all code in it: the time of day is ahead by so much, in
// whole seconds, behind if it is negative; and of the time that passes only one in slow is seen, 1 for all. Now stays
// right. It is called once, at the start.
//
// Programs read the clock by a function that the kernel has put into each process (vDSO). The first instruction of that
// is replaced by a jump to one which asks the kernel, and changes the answer.
func Move(ahead time.Duration, slow int) error {
	if ahead%time.Second != 0 || ahead.Abs() > 24*time.Hour || slow < 1 {
		return fmt.Errorf("a clock cannot be ahead by %v and slower by %d here", ahead, slow)
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	begin, size, err := vdso()
	if err != nil {
		return err
	}
	image := make([]byte, size)
	if _, err := memory.ReadAt(image, int64(begin)); err != nil && err != io.EOF {
		return err
	}
	entry, err := symbol(image, "__vdso_clock_gettime")
	if err != nil {
		return err
	}
	entry += begin

	// The jump reaches 2 GiB at most. The kernel gives the highest place that is free, which is near; otherwise it is
	// looked for behind the function.
	page := uint64(0)
	for at := uint64(0); ; {
		got, _, failed := unix.Syscall6(unix.SYS_MMAP, uintptr(at), 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		if failed != 0 {
			return os.NewSyscallError("mmap", failed)
		}
		if page = uint64(got); max(page, entry)-min(page, entry) < 1<<30 {
			break
		}
		if at = max(at, begin) + 1<<20; at-begin > 1<<30 {
			return fmt.Errorf("there is no room near the kernel's function")
		}
	}
	code := wrongClock(int32(ahead/time.Second), uint64(Now()), uint32(slow))
	if _, err := memory.WriteAt(code, int64(page)); err != nil {
		return err
	}

	// Eight bytes at once, aligned: other threads may be on their way into the function.
	first := make([]byte, 8)
	copy(first, image[entry-begin:])
	first[0] = 0xe9 // jmp
	binary.LittleEndian.PutUint32(first[1:], uint32(int64(page)-int64(entry)-5))
	_, err = memory.WriteAt(first, int64(entry))

	return err
}

// vdso is where the kernel's functions are in this process.
func vdso() (begin, size uint64, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var end uint64
		_, err := fmt.Sscanf(line, "%x-%x", &begin, &end)

		return begin, end - begin, err
	}

	return 0, 0, fmt.Errorf("the kernel has put no functions into this process")
}

// symbol is where a function is in the image.
func symbol(image []byte, name string) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == name {
			return s.Value, nil
		}
	}

	return 0, fmt.Errorf("the kernel has no function %s", name)
}

// wrongClock is a function like clock_gettime of C, in machine code.
func wrongClock(ahead int32, from uint64, slow uint32) []byte {
	b := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, 228
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x08, // jne other
		0x48, 0x81, 0x06} // add qword [rsi], ahead
	b = binary.LittleEndian.AppendUint32(b, uint32(ahead))
	b = append(b,
		0xc3,             // ret
		0x83, 0xff, 0x01, // other: cmp edi, 1
		0x75, 0x3a, // jne end
		0x48, 0x8b, 0x06, // mov rax, [rsi]
		0x48, 0x69, 0xc0, 0x00, 0xca, 0x9a, 0x3b, // imul rax, rax, 1000000000
		0x48, 0x03, 0x46, 0x08, // add rax, [rsi+8]
		0x48, 0xb9) // mov rcx, from
	b = binary.LittleEndian.AppendUint64(b, from)
	b = append(b,
		0x48, 0x29, 0xc8, // sub rax, rcx
		0x31, 0xd2, // xor edx, edx
		0x41, 0xb8) // mov r8d, slow
	b = binary.LittleEndian.AppendUint32(b, slow)

	return append(b,
		0x49, 0xf7, 0xf0, // div r8
		0x48, 0x01, 0xc8, // add rax, rcx
		0x31, 0xd2, // xor edx, edx
		0xb9, 0x00, 0xca, 0x9a, 0x3b, // mov ecx, 1000000000
		0x48, 0xf7, 0xf1, // div rcx
		0x48, 0x89, 0x06, // mov [rsi], rax
		0x48, 0x89, 0x56, 0x08, // mov [rsi+8], rdx
		0x31, 0xc0, // end: xor eax, eax
		0xc3) // ret
}
