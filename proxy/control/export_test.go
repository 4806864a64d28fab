package control

// Routes lists an API's routes as the mux has them, for the tests of its description.
func Routes(a *API) []string {
	var list []string
	for _, r := range a.routes() {
		list = append(list, r.method+" "+r.path)
	}
	return list
}
