package bench

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks below n, of which rank r is drawn in proportion to 1/(r+1)^theta. The method is that of Gray and
// others, "Quickly generating billion-record synthetic databases" (1994): one draw of a uniform number, whatever n is.
// The two first ranks are exact, the others approximate.
//
// It does not change once made.
type zipf struct {
	n, zeta, second float64 // second is the sum of the first two terms
	alpha, eta      float64
}

// zipfTheta is YCSB's.
const zipfTheta = 0.99

// newZipf draws below n, which is 1 at least.
func newZipf(n uint64) zipf {
	z := zipf{n: float64(n), zeta: zeta(n), second: zeta(2), alpha: 1 / (1 - zipfTheta)}
	z.eta = (1 - math.Pow(2/z.n, 1-zipfTheta)) / (1 - z.second/z.zeta)

	return z
}

func (z zipf) draw(random *rand.Rand) uint64 {
	u := random.Float64()
	switch uz := u * z.zeta; {
	case uz < 1 || z.n < 2:
		return 0
	case uz < z.second || z.n < 3:
		return 1
	}

	return uint64(min(z.n*math.Pow(z.eta*(u-1)+1, z.alpha), z.n-1))
}

// zeta is the sum of 1/i^theta for i from 1 to n: term by term at first, and the rest by the formula of Euler and
// Maclaurin.
func zeta(n uint64) float64 {
	const single = 1000
	sum := 0.0

	for i := range min(n, single) {
		sum += math.Pow(float64(i+1), -zipfTheta)
	}
	if n <= single {
		return sum
	}
	f := func(x float64) float64 { return math.Pow(x, -zipfTheta) }
	slope := func(x float64) float64 { return -zipfTheta * math.Pow(x, -zipfTheta-1) }
	integral := func(x float64) float64 { return math.Pow(x, 1-zipfTheta) / (1 - zipfTheta) }
	a, b := float64(single), float64(n)

	return sum + integral(b) - integral(a) + (f(b)-f(a))/2 + (slope(b)-slope(a))/12
}

// fnv is YCSB's hash of a number, which makes its keys and scatters what is popular: the 64-bit FNV-1a of its eight
// bytes, the lowest first, without the sign.
func fnv(number uint64) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for range 8 {
		hash = (hash ^ number&0xff) * 0x100000001b3
		number >>= 8
	}
	if signed := int64(hash); signed < 0 {
		return uint64(-signed)
	}

	return hash
}
