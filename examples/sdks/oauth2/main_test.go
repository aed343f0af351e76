package main

func Example() {
	main()
	// Output:
	// ann: 429 Too Many Requests
	// ann: not sent, because the server said so before
	// bob: 200 OK
}
