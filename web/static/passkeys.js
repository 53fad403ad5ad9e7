// A passkey's touch: the browser is asked as soon as the page is there, and its answer is sent with the form.
(() => {
  const form = document.getElementById("passkey");
  const told = document.getElementById("passkey-told");

  const ask = async () => {
    if (!window.PublicKeyCredential || location.origin !== form.dataset.origin) {
      told.textContent = `Passkeys of this service work at ${form.dataset.origin}: open this page there.`;
      return;
    }
    const call = form.dataset.call;
    const read = call === "create" ? "parseCreationOptionsFromJSON" : "parseRequestOptionsFromJSON";
    try {
      told.textContent = "Waiting for your passkey.";
      const publicKey = PublicKeyCredential[read](JSON.parse(form.dataset.options));
      const found = await navigator.credentials[call]({ publicKey });
      form.elements.passkey.value = JSON.stringify(found);
    } catch {
      told.textContent = "No passkey answered. Nothing was changed; the button asks again.";
      return;
    }
    told.textContent = "Thank you.";
    form.submit();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  ask();
})();
