// Sets the theme before the page is drawn; without a choice it is the system's.
(() => {
	try {
		const theme = localStorage.getItem("holdfast.theme");
		if (theme === "light" || theme === "dark") {
			document.documentElement.dataset.theme = theme;
		}
	} catch {
		// Storage may be switched off.
	}
})();
