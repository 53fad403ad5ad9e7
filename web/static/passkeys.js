// A passkey's touch: the browser is asked as soon as the page is there, and its answer is sent with the form.
(() => {
  const form = document.getElementById("passkey");
  const told = document.getElementById("passkey-told");
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const text = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const listed = (all) => (all || []).map((each) => ({ ...each, id: bytes(each.id) }));

  const options = () => {
    const found = JSON.parse(form.dataset.options);
    found.challenge = bytes(found.challenge);
    if (found.user) found.user.id = bytes(found.user.id);
    if (found.allowCredentials) found.allowCredentials = listed(found.allowCredentials);
    if (found.excludeCredentials) found.excludeCredentials = listed(found.excludeCredentials);
    return { publicKey: found };
  };

  const answer = ({ id, rawId, type, response }) => {
    const parts = {};
    for (const name of ["clientDataJSON", "authenticatorData", "signature", "userHandle", "attestationObject"]) {
      if (response[name]) parts[name] = text(response[name]);
    }
    return JSON.stringify({ id, rawId: text(rawId), type, response: parts });
  };

  const ask = async () => {
    if (!window.PublicKeyCredential || location.origin !== form.dataset.origin) {
      told.textContent = `Passkeys of this service work at ${form.dataset.origin}: open this page there.`;
      return;
    }
    try {
      told.textContent = "Waiting for your passkey.";
      const found = await navigator.credentials[form.dataset.call](options());
      form.elements.passkey.value = answer(found);
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
