package simulate

import "testing"

// TestMutants breaks the engine in many ways and expects that it is found out soon.
func TestMutants(t *testing.T) {
	for _, m := range Mutants() {
		t.Run(m.Breaks, func(t *testing.T) {
			t.Parallel()
			for seed := max(m.first, 1); seed <= m.enough; seed++ {
				if _, err := m.Run(t.Context(), seed); err != nil {
					t.Logf("found with seed %d: %.300v", seed, err)
					return
				}
			}
			t.Errorf("not found within %d seeds", m.enough)
		})
	}
}
