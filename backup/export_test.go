package backup

// FollowStep calls f between the steps that change a directory which follows, until the function that it returns is
// called.
func FollowStep(f func(dir string)) (end func()) {
	was := followStep
	followStep = f

	return func() { followStep = was }
}
