// rueidislock as a contestant of the benchmarks: one key per lock, because there is one server.
package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"lockkeeper/bench/peers/course"
)

type lock struct {
	locker rueidislock.Locker
	name   string
}

func (l lock) Take() (func(), error) {
	_, give, err := l.locker.WithContext(context.Background(), l.name)
	return give, err
}

func main() {
	order := course.ReadOrder()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: order.Addresses()},
		KeyMajority:  1,
	})
	course.Must(err)
	course.Race(order, func(name string) course.Lock { return lock{locker, name} })
}
