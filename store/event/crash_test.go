package event_test

const childEnv = "HOLDFAST_EVENT_CHILD"

func child() {}
