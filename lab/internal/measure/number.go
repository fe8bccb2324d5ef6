package measure

import (
	"fmt"
	"math"
	"strconv"
)

// The tables' numbers have two to three digits, which is what the measurement is good for.

// Count writes 12, 870, 19.6k, 1.2M.
func Count(x float64) string {
	unit := ""
	for _, u := range []string{"k", "M", "G"} {
		if math.Abs(x) < 999.5 {
			break
		}
		x, unit = x/1000, u
	}

	return Digits(x) + unit
}

// Duration writes microseconds as 63 ns, 1.42 us, 51 us, 4.6 ms, 1.2 s.
func Duration(us float64) string {
	switch {
	case us < 0:
		return "?"
	case us == 0:
		return "0"
	case us < 0.9995:
		return strconv.FormatFloat(us*1000, 'f', 0, 64) + " ns"
	case us < 999.5:
		return Digits(us) + " us"
	case us < 999.5e3:
		return Digits(us/1e3) + " ms"
	}

	return Digits(us/1e6) + " s"
}

// Size writes bytes as 3.4 MB, in powers of 1000 as disks are sold.
func Size(bytes int64) string {
	if bytes < 0 {
		return "?"
	}

	x := float64(bytes)
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if x < 999.5 {
			if unit == "B" {
				return fmt.Sprintf("%d B", bytes)
			}

			return Digits(x) + " " + unit
		}
		x /= 1000
	}

	return Digits(x) + " TB"
}

// Percent writes a share as 78 %, 0.4 %.
func Percent(x float64) string {
	if x > 0 && x < 0.00995 {
		return strconv.FormatFloat(100*x, 'g', 1, 64) + " %"
	}

	return strconv.FormatFloat(100*x, 'f', 0, 64) + " %"
}

// Digits writes three digits, without zeros that say nothing.
func Digits(x float64) string {
	precision := 2
	switch {
	case math.Abs(x) >= 99.95:
		precision = 0
	case math.Abs(x) >= 9.995:
		precision = 1
	}
	s := strconv.FormatFloat(x, 'f', precision, 64)
	if precision > 0 {
		for s[len(s)-1] == '0' {
			s = s[:len(s)-1]
		}
		if s[len(s)-1] == '.' {
			s = s[:len(s)-1]
		}
	}

	return s
}
